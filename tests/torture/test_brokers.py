"""Two and three brokers keep acknowledged messages under crashes, partitions, lost disks and forced
promotions. What each rule is for: test_broker_rules.py."""

from stratamq_torture.brokers.simulation import TRIAL, Simulation
from stratamq_torture.trial import Options

OPERATIONS = 100


def test_what_was_promised_is_on_the_serving_broker_and_all_logs_are_equal_in_the_end():
    report = TRIAL.simulate(Options(8, 0, operations=OPERATIONS))
    assert (report.failures, report.lost) == ([], 0)
    assert report.acknowledged_messages > 100
    assert report.promotions > 0


def test_a_seed_does_the_same_again():
    first, again = (Simulation(14, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(15, trace=True).run(OPERATIONS).trace != first.trace


def test_a_master_put_back_to_before_an_empty_generation_is_refused_until_it_is_marked_restored():
    outcome = Simulation(12038, changes=False).run(OPERATIONS)
    assert outcome.violation is None
    assert outcome.situations["slaves refused a master that had forgotten a generation"] == 1


def test_a_replaced_master_that_answers_late_without_confirmation_has_promised_nothing():
    assert Simulation(13056, changes=False).run(OPERATIONS).violation is None


def test_after_a_power_loss_frames_behind_a_hole_in_the_unflushed_end_promise_nothing():
    """Under asynchronous flush: their pages reached the disk, and recovery ends before them."""
    assert Simulation(37, changes=False).run(OPERATIONS).violation is None


def test_what_is_shown_after_a_power_loss_took_its_copy_is_replicated_no_more():
    """Under asynchronous flush: the slave had acknowledged it, the master still shows it."""
    assert Simulation(86, changes=False).run(OPERATIONS).violation is None


def test_a_master_remembers_what_was_acknowledged_in_its_term_alone():
    """Another was promoted meanwhile and cut the rest: a slave that has less forgot nothing."""
    assert Simulation(21248).run(OPERATIONS).violation is None


def test_a_promise_to_a_member_that_is_being_removed_keeps_no_master_from_the_others():
    assert Simulation(21792).run(OPERATIONS).violation is None


def test_an_empty_slave_of_a_second_first_master_tells_its_operator_to_begin_again():
    """All logs are empty. A lost disk is replaced by one that is configured as a master, and founds
    the cluster again; it steps down, and its slave may not follow the master that was first."""
    outcome = Simulation(3095).run(60)
    assert outcome.violation is None
    assert outcome.situations["an empty slave of a second master began again"] == 1
