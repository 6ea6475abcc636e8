#include "job/setup/written_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/segment/new_values.h"
#include "job/setup/job_stages.h"

namespace dslaunch::job {

namespace {

using graph::LoweredGraph;
using graph::ParameterWrites;

constexpr const char* kFrozenAdvice =
    "forward may always write into a copy that no optimizer updates (requires_grad_(False))";

std::string name_of(const JobSetup& setup, int parameter) {
    return printable(setup.model->parameters()[parameter].name);
}

// Returns the reason why a graph that writes parameters in place cannot be trained with these
// settings: the parameters would get other values than in one process. Returns an empty text if the
// settings allow it.
std::string why_apart(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    if (setup.own_ranks().world_size() > 1)
        return fmt::format(
            "each of the {} ranks that train it would write its own values: train on one rank",
            setup.own_ranks().world_size());
    if (setup.sharing.place.size > 1)
        return "each rank that shares a batch would write its own values: leave "
               "dslaunch.tensor.size and dslaunch.sequence.size out";
    if (setup.place.is_pipeline())
        return "a stage works on several batches at once: leave dslaunch.pipeline.stages out";
    if (config.precision.compute != DType::kF32)
        return "its fp32 copy would not get the new values: train in fp32 (bf16 and fp16 off)";
    if (config.recompute_groups > 0)
        return "a recompute would write it twice: set "
               "activation_checkpointing.number_checkpoints to 0";
    if (config.offload.on_disk()) return "values that are offloaded to nvme would not be updated";
    return {};
}

void check_in_place(const JobSetup& setup, const LoweredGraph& lowered) {
    if (lowered.in_place.empty()) return;
    const std::string why = why_apart(setup);
    if (why.empty()) return;
    const graph::WriteInPlace& write = lowered.in_place.front();
    fail(ExitCode::kInput, "{}: forward writes the trained parameter `{}` {}, but {}; {}",
         printable(write.node), name_of(setup, write.parameter), write.why, why, kFrozenAdvice);
}

[[noreturn]] void refuse(const JobSetup& setup, const ParameterWrites& writes,
                         const std::string& why) {
    fail(ExitCode::kInput, "{}: forward writes the trained parameter `{}`, {}",
         printable(writes.nodes.front()), name_of(setup, writes.written.front()), why);
}

// Checks that each stage has all values from which it writes the parameters that it trains.
void check_stages(const JobSetup& setup, const ParameterWrites& writes) {
    if (!setup.place.is_pipeline()) return;
    const std::vector<std::vector<int>> parameters = stages_of_parameters(setup);
    const std::vector<std::vector<int>> buffers = stages_of_buffers(setup);
    const std::vector<int>& home = parameters[writes.written.front()];
    const auto require = [&](const std::vector<int>& stages, const std::string& name) {
        if (std::ranges::includes(stages, home)) return;
        refuse(setup, writes,
               fmt::format("but stage {} of the pipeline lacks a value that is needed for this: "
                           "`{}`; use dslaunch.pipeline.first_segments to put all segments that "
                           "read the parameter or this value into one stage",
                           home.empty() ? 0 : home.front(), name));
    };
    for (const int parameter : writes.parameters)
        require(parameters[parameter], name_of(setup, parameter));
    for (const int parameter : writes.written)
        require(parameters[parameter], name_of(setup, parameter));
    for (const int buffer : writes.buffers)
        require(buffers[buffer], printable(setup.model->buffers()[buffer].name));
}

void check_shares(const JobSetup& setup, const ParameterWrites& writes) {
    for (const std::vector<int>* const list : {&writes.written, &writes.parameters})
        for (const int parameter : *list)
            if (setup.sharing.is_split(parameter))
                refuse(setup, writes,
                       fmt::format("but each tensor rank would use only its own share of `{}`: "
                                   "give it the rule `replicated` in dslaunch.tensor.rules",
                                   name_of(setup, parameter)));
}

// Checks that the result stays correct if forward does WRITES several times between two updates.
// REPEATS says why forward runs more than once; empty: it runs once.
void check_repeats(const JobSetup& setup, const ParameterWrites& writes,
                   const std::string& repeats) {
    if (repeats.empty()) return;
    if (!writes.reads_moved_buffers && graph::is_projection(*setup.model, writes)) return;
    refuse(setup, writes,
           fmt::format("and each further run of forward changes its value again (a decay does, a "
                       "clamp or a normalization does not), but {}: change the parameter outside "
                       "the model, or train with weight_decay",
                       repeats));
}

void check_places(const JobSetup& setup, const ParameterWrites& writes) {
    const config::RunConfig& config = setup.config();
    const bool half = config.precision.compute != DType::kF32;
    if (setup.plan_options.offload.parameters || (half && config.offload.on_disk()))
        refuse(setup, writes,
               "but its values are on disk (offload to nvme), where they cannot be written between "
               "steps in this version: keep parameters in memory");
    if (config.lagging.on)
        refuse(setup, writes,
               "but updates of earlier steps are still pending (zero_optimization.zenflow): train "
               "without zenflow");
    if (config.optimizer.compresses())
        refuse(setup, writes,
               "but hosts have different values of it between their exchanges: use AdamW instead "
               "of the compressing optimizer");
}

void check_hoisted(const JobSetup& setup, const LoweredGraph& lowered, const std::string& repeats) {
    for (const ParameterWrites& writes : lowered.writes) {
        check_places(setup, writes);
        check_shares(setup, writes);
        check_stages(setup, writes);
        check_repeats(setup, writes, repeats);
    }
}

}  // namespace

bool writes_parameters(const JobSetup& setup) {
    const LoweredGraph& lowered = setup.segmented->lowered();
    const bool holds =
        std::ranges::any_of(setup.model->buffers(), [](const graph::ModelBuffer& buffer) {
            return buffer.origin != graph::ModelBuffer::Origin::kBuffer;
        });
    return holds || !lowered.writes.empty() || !lowered.in_place.empty();
}

std::function<bool(int)> written_here(const JobSetup& setup) {
    if (!setup.place.is_pipeline()) return {};
    std::vector<char> here;
    for (const std::vector<int>& stages : stages_of_parameters(setup))
        here.push_back(std::ranges::count(stages, setup.place.stage) > 0 ? 1 : 0);
    return [here = std::move(here)](int parameter) { return here[parameter] != 0; };
}

void check_writes_in_place(const JobSetup& setup) {
    check_in_place(setup, setup.segmented->lowered());
}

void check_writes(const JobSetup& setup) {
    const LoweredGraph& lowered = setup.segmented->lowered();
    const int64_t micro_steps = setup.config().batch.accumulation_steps;
    check_hoisted(setup, lowered,
                  micro_steps == 1 ? ""
                                   : fmt::format("a step runs forward {} times before it updates "
                                                 "(gradient_accumulation_steps)",
                                                 micro_steps));
}

void check_held_out_writes(const JobSetup& setup, const LoweredGraph& held_out) {
    check_in_place(setup, held_out);
    check_hoisted(setup, held_out, "an evaluation runs forward once for each held-out batch");
}

}  // namespace dslaunch::job
