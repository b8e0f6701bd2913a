"""A job that is enqueued in a transaction of the user's own has its parent, too."""

from tenure import Tenure
from tests.jobs.transactions.kinds import ONE_OF_EACH_DRIVER


@ONE_OF_EACH_DRIVER
async def test_a_job_of_a_transaction_has_its_parent(app: Tenure, own):
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> str:
        async with own.transaction():
            return (await child.within(own.connection).enqueue()).id

    async with app.worker():
        job = await parent.enqueue()
        id_ = await job.result(timeout=20)
        assert (await app.job(id_)).parent == job.id
        assert [child.id for child in await app.jobs(parent=job.id)] == [id_]
