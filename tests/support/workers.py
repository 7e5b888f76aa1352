"""What the process that hands out tests to others does."""

import sys

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduling(LoadGroupScheduling):
    """Goes on when a worker has died: pytest-xdist 3.8 would hand out the test that killed it again
    and its finished groups, too, and one test at a time, and a worker that knows of no other test
    keeps its last one for ever."""

    def remove_node(self, node: WorkerController) -> str | None:
        work = self.assigned_work[node]
        waiting = [
            (group, test) for group in work for test, done in work[group].items() if not done
        ]
        if waiting:
            group, ran = waiting[0]
            work[group][ran] = True
        for group in [group for group, tests in work.items() if all(tests.values())]:
            del work[group]
        super().remove_node(node)
        return ran if waiting else None

    def schedule(self) -> None:
        super().schedule()
        super().schedule()


class WithWorkers:
    """Names each failure when it happens, and hands out the tests."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test that failed: a run that is ended from outside has no summary."""
        if report.failed:
            print(f"\nFAILED {report.nodeid} ({report.when})", file=sys.__stdout__, flush=True)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Scheduling:
        """Hand out the tests by their groups."""
        return Scheduling(config, log)
