#include "job/setup/job_tensor.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "graph/adapter/packed_base.h"
#include "graph/lower/device_rewrite.h"
#include "graph/measure/measure.h"
#include "graph/sharing/share_of.h"
#include "graph/sharing/thread_group.h"
#include "job/setup/lower_options.h"
#include "plan/step/recompute_groups.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::job {

TensorRequest tensor_request(const config::RunConfig& config) {
    TensorRequest request;
    request.sequence = config.sequence.size > 1;
    request.check = request.sequence ? config.sequence.check : config.tensor.check;
    request.rules.size =
        static_cast<int>(request.sequence ? config.sequence.size : config.tensor.size);
    request.rules.share_positions = config.tensor.share_positions;
    request.rules.strict = config.tensor.strict;
    for (const auto& [pattern, word] : config.tensor.rules)
        request.rules.patterns.emplace_back(pattern, plan::parse_tensor_rule(pattern, word));
    for (const auto& [expression, word] : config.tensor.expressions)
        request.rules.expressions.emplace_back(expression,
                                               plan::parse_tensor_rule(expression, word));
    return request;
}

namespace {

graph::TensorModel rewritten(const graph::Model& model, const graph::LoweredGraph& lowered,
                             const graph::GraphInputs& inputs, const TensorRequest& request) {
    return request.sequence
               ? graph::make_sequence_parallel(model, lowered, inputs, request.rules.size)
               : graph::make_tensor_parallel(model, lowered, inputs, request.rules);
}

}  // namespace

graph::TensorModel rewrite_for_group(const graph::Model& model, const graph::LoweredGraph& lowered,
                                     std::vector<c10::IValue> first_inputs,
                                     const TensorRequest& request) {
    const at::NoGradGuard no_grad;
    graph::GraphInputs inputs;
    inputs.arguments = std::move(first_inputs);
    for (const graph::ModelParameter& parameter : model.parameters()) {
        const at::Tensor tensor = parameter.tensor.detach();
        inputs.parameters.push_back(
            tensor.scalar_type() == at::kFloat ? tensor.to(lowered.parameter_dtype) : tensor);
    }
    for (const graph::ModelBuffer& buffer : model.buffers())
        inputs.buffers.push_back(buffer.tensor);
    return rewritten(model, lowered, inputs, request);
}

graph::TensorCheck check_with_threads(const JobSetup& setup,
                                      const std::vector<c10::IValue>& first_inputs,
                                      const TensorRequest& request) {
    graph::LowerOptions options;
    options.loss = setup.config().loss;
    options.lora = setup.config().lora;
    const graph::LoweredGraph lowered = graph::in_double(graph::lower(*setup.model, options));
    const graph::GraphInputs inputs = graph::inputs_in_double(*setup.model, first_inputs);
    const graph::TensorModel tensor = rewritten(*setup.model, lowered, inputs, request);
    const graph::TensorReference reference = graph::run_reference(*setup.model, lowered, inputs);
    graph::TensorCheck result;
    graph::run_tensor_ranks(request.rules.size, [&](graph::TensorGroup& group) {
        const graph::TensorCheck mine =
            graph::check_tensor_model({*setup.model, lowered, tensor, inputs, reference}, group);
        if (group.rank() == 0) result = mine;
    });
    return result;
}

plan::Mesh mesh_of_job(const config::RunConfig& config, const runtime::Topology& place) {
    plan::MeshSizes sizes;
    sizes.tensor = static_cast<int>(config.tensor.size);
    sizes.sequence = static_cast<int>(config.sequence.size);
    sizes.pipeline = static_cast<int>(config.pipeline.stages);
    sizes.data = static_cast<int>(place.world_size() / config.ranks_of_copy());
    return plan::Mesh::make(sizes, place.node_sizes);
}

SharingPlace place_in_group(const config::RunConfig& config, const runtime::Topology& place,
                            const runtime::PipelinePlace& stage) {
    SharingPlace sharing;
    sharing.positions = config.sequence.size > 1;
    sharing.size = static_cast<int>(sharing.positions ? config.sequence.size : config.tensor.size);
    if (sharing.size == 1) return sharing;
    const int position = stage.of_stage.rank();
    std::vector<int>& members = sharing.group.members;
    members.clear();
    bool alike = true;
    if (sharing.positions) {
        // The members of a group are neighbours among the ranks that ZeRO shards over.
        sharing.index = position % sharing.size;
        for (int k = 0; k < sharing.size; ++k)
            members.push_back(stage.members[position - sharing.index + k]);
    } else {
        const plan::Mesh mesh = mesh_of_job(config, place);
        constexpr auto kTensor = static_cast<size_t>(plan::MeshAxis::kTensor);
        constexpr auto kPipeline = static_cast<size_t>(plan::MeshAxis::kPipeline);
        sharing.index = mesh.index_of(place.rank())[kTensor];
        std::vector<std::vector<int>> worlds(static_cast<size_t>(sharing.size));
        for (int rank = 0; rank < place.world_size(); ++rank) {
            const plan::MeshIndex index = mesh.index_of(rank);
            if (index[kPipeline] == stage.stage) worlds[index[kTensor]].push_back(rank);
        }
        for (const std::vector<int>& world : worlds) members.push_back(world[position]);
        // Ranks with the same shares sum gradients together. Some parameters are not split, so all
        // ranks of a group have copies of them. The copies stay equal only if all sums have the
        // same order, so all sets of ranks that sum together must be distributed over the hosts in
        // the same way.
        const auto hosts_of = [&](const std::vector<int>& world) {
            return runtime::Topology::of_member(place.node_sizes, world, world.front()).node_sizes;
        };
        alike = members == mesh.group(plan::MeshAxis::kTensor, place.rank()) &&
                std::ranges::all_of(worlds, [&](const std::vector<int>& world) {
                    return hosts_of(world) == hosts_of(worlds.front());
                });
    }
    if (!alike || !std::ranges::is_sorted(members))
        fail(ExitCode::kConfig,
             "dslaunch.tensor.size: groups of {} ranks do not fit on these hosts; give each host a "
             "multiple of {} slots",
             sharing.size, sharing.size);
    sharing.group.topology = runtime::Topology::of_member(place.node_sizes, members, place.rank());
    return sharing;
}

void check_sharing(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    if (config.tensor.size * config.sequence.size == 1) return;
    const std::string key =
        config.tensor.size > 1 ? "dslaunch.tensor.size" : "dslaunch.sequence.size";
    if (setup.on_gpu)
        fail(ExitCode::kConfig,
             "{}: in this version, ranks can share batches only on CPUs; leave the key out, or set "
             "dslaunch.device to cpu",
             key);
    if (config.tensor.size > 1 && config.lora.base != config::LoraBase::kAsIs)
        fail(ExitCode::kConfig,
             "{}: dslaunch.lora.base is not available in this version when ranks share layers, "
             "because they would round the weights differently than one rank does; share positions "
             "(dslaunch.sequence.size), use pipeline stages, or leave base out",
             key);
    if (config.offload.on_disk())
        fail(
            ExitCode::kConfig,
            "{}: cannot be combined with offload to nvme in this version; leave one of the two out",
            key);
}

namespace {

// Checks that training and evaluation use the same shares.
void require_same_shares(const plan::TensorPlan& train, const plan::TensorPlan& held_out) {
    for (size_t p = 0; p < train.parameters.size(); ++p) {
        const plan::TensorParameter& a = train.parameters[p];
        const plan::TensorParameter& b = held_out.parameters[p];
        if (a.rule == b.rule && a.shard == b.shard) continue;
        fail(ExitCode::kInput,
             "held-out data: parameter {} is split by {} in training and by {} in eval mode; give "
             "it a rule in dslaunch.tensor.rules, or train without held-out data",
             a.name, plan::tensor_rule_name(a.rule), plan::tensor_rule_name(b.rule));
    }
}

// Checks that there is enough memory to compare the whole model with all of its shares in fp64,
// including gradients. An error at this point is better than a host that runs out of memory.
void check_room_for_check(const JobSetup& setup, const TensorRequest& request) {
    constexpr int64_t kBytesOfParameter = 32;
    Bytes need;
    for (const graph::ModelParameter& parameter : setup.model->parameters())
        need += Bytes{parameter.tensor.numel() * kBytesOfParameter};
    const std::optional<MemoryLimit> limit = tightest_share(read_memory_state().limits, 1);
    if (limit && limit->left < need)
        fail(ExitCode::kSetup,
             "comparing the split graph with the unsplit graph needs {} in rank 0, but {} leaves "
             "only {}; set dslaunch.{}.check to false, and compare the graphs with `dslaunch plan` "
             "on a machine with more memory",
             to_text(need), limit->name, to_text(limit->left),
             request.sequence ? "sequence" : "tensor");
}

// Packs the base weights if the config asks for it. This is possible because the ranks share
// positions and have whole weights.
void pack_shared(JobSetup& setup, graph::LoweredGraph& lowered) {
    const config::LoraBase base = setup.config().lora.base;
    if (base != config::LoraBase::kAsIs) graph::pack_base(*setup.model, lowered, base);
}

void make_held_out(JobSetup& setup, const JobArguments& arguments,
                   const std::vector<c10::IValue>& first_inputs, const TensorRequest& request,
                   const plan::TensorPlan& plan) {
    const config::RunConfig& config = setup.config();
    const graph::LoweredGraph lowered =
        graph::lower(*setup.model, lower_options(config, c10::kCPU, /*training=*/false));
    setup.model->set_training(true);
    graph::TensorModel tensor = rewrite_for_group(*setup.model, lowered, first_inputs, request);
    require_same_shares(plan, tensor.plan);
    pack_shared(setup, tensor.lowered);
    const bool pieces = setup.config().zero.stage == 3;
    const int64_t segments = config.pipeline.stages > 1 ? arguments.segments : pieces ? 0 : 1;
    setup.sharing.held_out = std::make_unique<graph::SegmentedModel>(
        graph::SegmentedModel::of_graph(*setup.model, std::move(tensor.lowered), segments));
}

// Loads the whole model in addition to the model whose parameters become shares, because
// checkpoints and final weights contain whole parameters. Parameters stay in the archive's memory
// unless they are split and not contiguous.
void keep_whole(JobSetup& setup, const JobArguments& arguments) {
    const at::NoGradGuard no_grad;
    setup.sharing.whole = std::make_unique<graph::Model>(graph::Model::load(
        arguments.model_path,
        setup.model->has_weights() ? graph::Weights::kRequired : graph::Weights::kIfThere,
        setup.trust, setup.kept_layers()));
    graph::Model& whole = *setup.sharing.whole;
    whole.hold_like(*setup.model, /*with_constants=*/true);
    // The archive does not contain the adapters, and its parameters are still marked as trained
    // although the job freezes them.
    const std::vector<graph::ModelParameter>& own = setup.model->parameters();
    for (size_t p = 0; p < own.size(); ++p) {
        const bool trained = own[p].tensor.requires_grad();
        if (p < whole.parameters().size()) {
            at::Tensor tensor = whole.parameters()[p].tensor;
            tensor.set_requires_grad(trained);
        } else {
            const int added = whole.add_parameter(
                own[p].name, own[p].tensor.detach().clone().set_requires_grad(trained));
            DSL_CHECK(added == static_cast<int>(p), "parameter {} became {}", p, added);
        }
    }
    for (size_t i = 0; i < whole.buffers().size(); ++i) {
        at::Tensor buffer = whole.buffers()[i].tensor;
        buffer.set_data(setup.model->buffers()[i].tensor);  // shared with the model that is trained
    }
    for (size_t p = 0; p < whole.parameters().size(); ++p) {
        at::Tensor tensor = whole.parameters()[p].tensor;
        const bool split = setup.sharing.is_split(static_cast<int>(p));
        if (split && !tensor.is_contiguous()) tensor.set_data(tensor.detach().contiguous());
    }
}

bool divides_evenly(const plan::TensorPlan& plan) {
    return std::ranges::all_of(plan.parameters, [&](const plan::TensorParameter& parameter) {
        return parameter.rule == plan::TensorRule::kReplicated ||
               plan::divides_evenly(parameter.shard, plan.size);
    });
}

void narrow(JobSetup& setup, const std::vector<c10::IValue>& batch) {
    SharingPlace& place = setup.sharing.place;
    const plan::TensorPlan& plan = *setup.sharing.plan;
    const config::RunConfig& config = setup.config();
    const bool unequal = !divides_evenly(plan);
    if (unequal && place.index > 0 && config.pipeline.stages > 1) {
        // The measurements of each group's first rank decide the stages.
        SharingPlace first = place;
        first.index = 0;
        graph::narrow_to_shares(*setup.model, plan, {0, place.size});
        const WithoutGroup alone(first);
        setup.sharing.of_first =
            graph::measure(*setup.segmented, batch, splits_backward(config.pipeline.schedule));
        for (size_t p = 0; p < plan.parameters.size(); ++p) {
            at::Tensor tensor = setup.model->parameters()[p].tensor;
            if (setup.sharing.is_split(static_cast<int>(p)))
                tensor.set_data(setup.sharing.whole->parameters()[p].tensor.detach());
        }
    }
    graph::narrow_to_shares(*setup.model, plan, {place.index, place.size});
}

// Prevents parameters that forward writes from being split, because forward computes their new
// values from whole parameters.
void hold_written_whole(const JobSetup& setup, TensorRequest& request) {
    for (const graph::ParameterWrites& writes : setup.segmented->lowered().writes)
        for (const std::vector<int>* const list : {&writes.written, &writes.parameters})
            for (const int parameter : *list)
                request.rules.patterns.emplace_back(setup.model->parameters()[parameter].name,
                                                    plan::TensorRule::kReplicated);
}

}  // namespace

void share_job(JobSetup& setup, const JobArguments& arguments,
               const std::vector<c10::IValue>& batch, bool first) {
    TensorRequest request = tensor_request(setup.config());
    hold_written_whole(setup, request);
    const std::vector<c10::IValue> inputs = setup.segmented->first_inputs(batch);
    graph::TensorModel tensor =
        rewrite_for_group(*setup.model, setup.segmented->lowered(), inputs, request);
    JobSharing& sharing = setup.sharing;
    sharing.plan = std::make_unique<plan::TensorPlan>(tensor.plan);
    if (request.check && first && !arguments.plan_only) {
        check_room_for_check(setup, request);
        sharing.check = check_with_threads(setup, inputs, request);
    }
    if (setup.data && setup.data->eval)
        make_held_out(setup, arguments, inputs, request, tensor.plan);
    pack_shared(setup, tensor.lowered);
    setup.segmented = std::make_unique<graph::SegmentedModel>(graph::SegmentedModel::of_graph(
        *setup.model, std::move(tensor.lowered), arguments.segments));
    if (!sharing.splits()) return;
    keep_whole(setup, arguments);
    narrow(setup, batch);
}

void let_go_of_other_stages(JobSetup& setup) {
    if (!setup.sharing.splits() || !setup.place.is_pipeline()) return;
    const at::NoGradGuard no_grad;
    std::vector<char> read(setup.model->parameters().size(), 0);
    for (const plan::SegmentInfo& segment : setup.info.segments)
        for (const int p : segment.parameters) read[p] = 1;
    for (size_t p = 0; p < read.size(); ++p) {
        if (read[p] != 0 || !setup.sharing.is_split(static_cast<int>(p))) continue;
        at::Tensor tensor = setup.model->parameters()[p].tensor;
        tensor.set_data(at::zeros({1}, tensor.options()).expand(tensor.sizes()));
    }
}

void share_untrained(JobSetup& setup, const std::vector<int>& parameters) {
    if (!setup.sharing.splits()) return;
    const at::NoGradGuard no_grad;
    const SharingPlace& place = setup.sharing.place;
    for (const int p : parameters) {
        at::Tensor tensor = setup.model->parameters()[p].tensor;
        const at::Tensor whole = setup.sharing.whole->parameters()[p].tensor.detach();
        const plan::TensorParameter& parameter = setup.sharing.plan->parameters[p];
        if (setup.sharing.is_split(p)) {
            tensor.set_data(graph::share_of(whole, parameter.shard, {place.index, place.size}));
        } else if (!tensor.equal(whole)) {
            tensor.detach().copy_(whole);
        }
    }
}

void compare_plans_of_group(runtime::Collectives& group, const JobSetup& setup) {
    std::string own;
    for (const plan::RecomputeGroup& recomputed : plan::make_recompute_groups(
             setup.info, setup.plan_options.recompute_groups, setup.plan_options.stage_work.parts))
        own += fmt::format("{}-{} ", recomputed.begin, recomputed.end);
    for (const plan::Bucket& bucket : setup.layout.buckets) {
        own += '|';
        for (int i = bucket.first_slice; i < bucket.end_slice; ++i)
            own += fmt::format("{} ", setup.layout.slices[i].parameter);
    }
    for (const std::string& other : group.all_gather(own))
        if (other != own)
            fail(ExitCode::kConfig,
                 "dslaunch.tensor.size: the {} ranks of a group have shares of unequal size, so "
                 "their buckets or activation checkpoints differ; make "
                 "zero_optimization.reduce_bucket_size a little larger or smaller, set "
                 "activation_checkpointing.number_checkpoints to the number of segments, or give a "
                 "size that divides heads, widths and vocabulary",
                 setup.sharing.place.size);
}

std::string sharing_text(const JobSetup& setup) {
    const plan::TensorPlan& plan = *setup.sharing.plan;
    const SharingPlace& place = setup.sharing.place;
    const auto split = std::ranges::count_if(plan.parameters, [](const plan::TensorParameter& p) {
        return p.rule != plan::TensorRule::kReplicated;
    });
    std::string text =
        place.positions
            ? fmt::format("sequence: {} ranks share the positions of each sample", plan.size)
            : fmt::format("tensor: {} ranks share each layer, {} of {} parameters are split",
                          plan.size, split, plan.parameters.size());
    text += fmt::format("; {} collectives per micro batch, which send {} forward and {} backward",
                        plan.collectives.size(), to_text(plan.forward_bytes()),
                        to_text(plan.backward_bytes()));
    text += plan::unproven_text(plan);
    if (setup.sharing.check)
        text += fmt::format(
            "\n  checked in fp64 on one micro batch: loss and gradients of the split and the whole "
            "model differ by at most {:.2g} of the largest value ({}); rounding explains a "
            "difference of up to {:.2g}",
            setup.sharing.check->difference, setup.sharing.check->where,
            setup.sharing.check->bound);
    return text;
}

}  // namespace dslaunch::job
