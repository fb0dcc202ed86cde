"""Values of every shape the formats allow, for Hypothesis."""

from hypothesis import strategies as st

from stratamq.formats.frame import encode
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
names = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12
)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), max_size=20)


@st.composite
def frames(draw) -> bytes:
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))
    return encode(
        magic=magic,
        topic=draw(st.binary(max_size=127 if magic == MAGIC_V1 else 300)),
        body=draw(st.binary(max_size=200)),
        properties=draw(st.binary(max_size=100)),
        born_host=draw(hosts),
        store_host=draw(hosts),
        queue_id=draw(i32),
        flag=draw(i32),
        queue_offset=draw(i64),
        physical_offset=draw(i64),
        sys_flag=draw(i32),
        born_timestamp_ms=draw(i64),
        store_timestamp_ms=draw(i64),
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
    )
