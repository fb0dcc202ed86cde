"""The program for spark-submit: the jobs with the options of `stratamq pipeline`.

stratamq pipeline zip stratamq.zip
spark-submit --master spark://HOST:7077 --py-files stratamq.zip stratamq_job.py rebuild LOG OUT
"""

from stratamq_pipeline.commands import submitted

if __name__ == "__main__":
    submitted()
