"""Every fault at every moment: the operator dies, answers are lost, requests are refused, watches break.

The plans follow from a run without faults. After each of them the result has to be that of the run without,
and nothing that the monitors forbid may have happened on the way.
"""

import os

import pytest
from mooring.testing.campaign import run_campaign
from mooring.testing.monitors import owned
from mooring.testing.workload import Workload

from widget_operator import Widget, register

from tests.steps import Servers, create, delete, edit

WORKLOADS = {
    "create": ((), (create,)),
    "resize": ((create,), (edit(replicas=5), edit(replicas=2))),
    "roll": ((create,), (edit(image="busybox:1.37", greeting="good morning"),)),
    "delete": ((create,), (delete, create)),
}


@pytest.mark.parametrize("name", WORKLOADS)
async def test_no_fault_leaves_a_trace(name: str) -> None:
    given, steps = WORKLOADS[name]
    workload = Workload(
        name=f"widget-{name}",
        kinds=(Widget,),
        operator=register,
        given=given,
        steps=steps,
        model=Servers,
        endpoints=False,
        monitors=(owned(),),
    )

    result = await run_campaign(workload, jobs=os.cpu_count() or 1)

    assert result.plans > 10
    assert [f"{one.plan}: {one.complaints}" for one in result.failures] == []
