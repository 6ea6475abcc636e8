// A rank that trains by a device's state, for tests with a GPU and without one.
#pragma once

#include "fixture_world.h"
#include "plan/step/device_plan.h"
#include "zero/device_state.h"

namespace dslaunch::testing {

using namespace zero;

// JOB with its model on DEVICE.
inline TrainingCase on_device(TrainingCase job, c10::Device device) {
    job.make_model = [make = job.make_model, device] {
        TrainedModel trained = make();
        move_to_device(trained.model, device);
        trained.lower.device = device;
        return trained;
    };
    return job;
}

// Trains by BACKEND, on the device of the job's model.
inline RankOutcome train_device_rank(TrainingCase job, bool usage_varies, DeviceBackend& backend,
                                     Collectives& collectives) {
    TrainingSetup setup(job, /*frozen=*/false);
    Resumed resumed(job, setup, collectives.topology());
    job.losses_late = true;
    const StepPlan plan = make_device_plan(Planned(job, setup, collectives.topology()).plan);
    DeviceState state(
        setup.model(), setup.layout, backend, collectives,
        {job.optimizer, job.clipping, job.micro_step && job.accumulation > 1, usage_varies,
         std::chrono::minutes(1), resumed.saved ? &*resumed.saved : nullptr});
    const auto checkpointer = checkpointer_for(job, setup, state, collectives);
    RankOutcome outcome = train_with(job, setup, plan, state, collectives, {}, checkpointer.get(),
                                     resumed.training, nullptr, &backend);
    collect_tensors(setup, state.slice_steps(), outcome);
    collectives.barrier();
    return outcome;
}

}  // namespace dslaunch::testing
