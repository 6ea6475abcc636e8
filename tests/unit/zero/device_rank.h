// A rank that trains with the state of a device, for tests with a GPU and without one.
#pragma once

#include <ATen/ops/equal.h>

#include <numeric>
#include <vector>

#include "base/check.h"
#include "fixture_world.h"
#include "runtime/comm/device_collectives.h"

namespace dslaunch::testing {

using namespace zero;

// Returns JOB with its model on DEVICE.
inline TrainingCase on_device(TrainingCase job, c10::Device device) {
    job.make_model = [make = job.make_model, device] {
        TrainedModel trained = make();
        move_to_device(trained.model, device);
        trained.lower.device = device;
        return trained;
    };
    return job;
}

// Returns copies of MODEL's parameters with the values that an evaluation reads from their tensors
// between steps.
inline std::vector<at::Tensor> held_parameters(ZeroState& state, Model& model) {
    std::vector<int> all(model.parameters().size());
    std::iota(all.begin(), all.end(), 0);
    state.hold(all, true);
    std::vector<at::Tensor> held;
    for (const int i : all) held.push_back(model.parameters()[i].tensor.detach().cpu().clone());
    state.let_go();
    return held;
}

// Trains with BACKEND, on DEVICE, as train_rank() of training_world.h trains on the host. CONTROL
// joins the ranks' hosts.
inline RankOutcome train_device_rank(TrainingCase job, bool usage_varies, DeviceBackend& backend,
                                     c10::Device device, Collectives& control) {
    TrainingSetup setup(job);
    const Topology ranks = control.topology().each_alone();
    Resumed resumed(job, setup, ranks);
    job.losses_late = true;
    const Planned planned(job, setup, ranks);
    ZeroPlace place = planned.place(setup);
    place.device = {&backend, device};
    ArenaLayout layout(1);
    const ZeroSlices slices = ZeroState::add_slices(place, job.precision.compute, layout);
    const Arena arena = Arena::on_device(std::move(layout), backend);
    HostGroup group(arena, {.ranks = {ranks.rank()}});
    const std::unique_ptr<Collectives> collectives = make_device_collectives(
        {&arena, &control, &backend, job.used_shard_group()}, std::chrono::minutes(1));
    ZeroState state(setup.model(), place, slices, arena, group, *collectives,
                    {job.optimizer,
                     job.clipping,
                     job.precision.compute,
                     job.precision.skip_nonfinite_steps,
                     resumed.saved ? &*resumed.saved : nullptr,
                     {},
                     nullptr,
                     usage_varies});
    const auto checkpointer = checkpointer_for(job, setup, state, control);
    RankOutcome outcome =
        train_with(job, setup, planned.plan, state, control, {}, checkpointer.get(),
                   resumed.training, nullptr, &backend, collectives.get());
    const std::vector<at::Tensor> held = held_parameters(state, setup.model());
    bring_into_model(state, setup.model());
    for (size_t i = 0; i < held.size(); ++i) {
        const ModelParameter& final = setup.model().parameters()[i];
        DSL_CHECK(at::equal(held[i], final.tensor.cpu().to(held[i].scalar_type())),
                  "{} differs between evaluation and the end", final.name);
    }
    collect_tensors(setup, state, outcome);
    control.barrier();
    return outcome;
}

}  // namespace dslaunch::testing
