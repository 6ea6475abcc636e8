#include "job/verify/whole_reference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "base/text.h"
#include "graph/archive/memory_order.h"
#include "graph/lower/loss.h"
#include "graph/lower/precision.h"
#include "graph/packed/packed_weight.h"
#include "graph/segment/compute_context.h"
#include "graph/tensor/graph_facts.h"
#include "graph/tensor/tensor_check.h"
#include "job/setup/lower_options.h"

namespace dslaunch::job {

namespace {

// Rounding differs between orders of sums; so many times what one order is off by is allowed.
constexpr double kOrders = 8;

// The same for a tensor of NUMEL elements, whose largest error is the measure: one element may by
// luck be nearly exact, all of several hardly. The ratio of two errors of normal distribution is
// above 6000 once in 10^4 times, and that of one to the largest of N above the N-th root of that.
double orders_of(int64_t numel) {
    constexpr double kOfOne = 6000;
    return std::max(kOrders,
                    std::pow(kOfOne, 1.0 / static_cast<double>(std::max<int64_t>(1, numel))));
}

// GRADIENT's elements in the order of PARAMETER's memory.
at::Tensor flat_like(const at::Tensor& parameter, const at::Tensor& gradient, at::ScalarType type) {
    const at::NoGradGuard no_grad;
    const at::Tensor laid =
        at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options().dtype(type));
    laid.copy_(gradient);
    return graph::in_memory_order(laid).clone();
}

at::Tensor to_double(const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach().to(at::kDouble) : tensor.detach();
}

double largest(const at::Tensor& tensor) {
    return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

std::vector<int> all_parameters(const graph::Model& model) {
    std::vector<int> all(model.parameters().size());
    std::iota(all.begin(), all.end(), 0);
    return all;
}

graph::LowerOptions options_in(const JobSetup& setup, at::ScalarType dtype) {
    graph::LowerOptions options = lower_options(setup.config(), c10::kCPU);
    options.compute_dtype = dtype;
    options.base = config::LoraBase::kAsIs;  // load_in_fp32() has rounded its weights
    return options;
}

}  // namespace

WholeReference::WholeReference(const JobSetup& setup, const std::string& path,
                               const std::string& scratch)
    : setup_(setup),
      scratch_(scratch.empty() ? nullptr : std::make_unique<ScratchMemory>(scratch)),
      model_(load_in_fp32(path)),
      whole_(graph::SegmentedModel::make(
          model_, options_in(setup, graph::scalar_type_of(setup.config().precision.compute)), 1)),
      in_double_(graph::in_double(graph::lower(model_, options_in(setup, at::kFloat)))) {
    const config::RunConfig& config = setup.config();
    if (in_double_.module_input)
        fail(ExitCode::kInput,
             "{} needs the module itself, so that the graph cannot be computed in fp64 to say what "
             "rounding explains; call a method of a known type instead",
             in_double_.opaque_node);
    if (!whole_.states().empty() && config.batch.data_parallel_size > 1)
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, of which each rank has its own: one rank alone "
             "cannot say what it would be; verify on one rank",
             whole_.states().front().path);
    for (int64_t rank = 0; rank < config.batch.data_parallel_size; ++rank)
        loaders_.push_back(std::make_unique<runtime::BatchLoader>(
            setup.data->train,
            runtime::BatchLoader::Options{config.batch, rank, config.seed, config.data.shuffle}));
}

// The model at PATH with weights in fp32, which training keeps them in; those that the job holds in
// fewer bits have the values that products see.
graph::Model WholeReference::load_in_fp32(const std::string& path) const {
    const at::NoGradGuard no_grad;
    graph::Model model = graph::Model::load(path);
    int64_t numel = 0;
    for (const graph::ModelParameter& parameter : model.parameters())
        numel += parameter.tensor.numel();
    require_room(numel);
    std::optional<ScratchMemory::Scope> scope;
    if (scratch_) scope.emplace(*scratch_);
    for (size_t p = 0; p < model.parameters().size(); ++p) {
        at::Tensor tensor = model.parameters()[p].tensor;
        const auto& packed = setup_.model->parameters()[p].packed;
        if (packed) {
            tensor.set_data(packed->rounded());
        } else if (tensor.is_floating_point()) {
            tensor.set_data(
                tensor.to(at::kFloat, /*non_blocking=*/false, /*copy=*/scope.has_value()));
        }
    }
    return model;
}

// Weights and gradients in fp32 and fp64, the compute dtype's copy, and sums of both kinds, of
// NUMEL parameters.
void WholeReference::require_room(int64_t numel) const {
    constexpr int64_t kBytesPerElement = 4 + 4 + 2 + 2 * (4 + 8) + 8 + 8;
    const Bytes need{numel * kBytesPerElement};
    if (scratch_ != nullptr) {
        if (need > scratch_->left())
            fail(ExitCode::kDisk,
                 "--scratch {}: verify computes the whole model on rank 0, which takes {} for {} "
                 "parameters, and {} are left on that disk",
                 printable(scratch_->folder()), to_text(need), numel, to_text(scratch_->left()));
        return;
    }
    for (const MemoryLimit& limit : read_memory_state().limits)
        if (need > limit.left)
            fail(ExitCode::kSetup,
                 "verify computes the whole model on rank 0 beside the job: that takes {} for {} "
                 "parameters, and by {} {} are left on its host; name a folder on a disk that has "
                 "as much with --scratch DIR, or "
                 "verify a model of fewer layers",
                 to_text(need), numel, limit.name, to_text(limit.left));
}

void WholeReference::Sums::add(const Sums& other) {
    loss += other.loss;
    if (gradients.empty()) gradients.resize(other.gradients.size());
    for (size_t p = 0; p < other.gradients.size(); ++p) {
        if (!other.gradients[p].defined()) continue;
        if (gradients[p].defined()) {
            gradients[p].add_(other.gradients[p]);
        } else {
            gradients[p] = other.gradients[p].clone();
        }
    }
}

void WholeReference::Sums::scale(double factor) {
    loss *= factor;
    for (at::Tensor& gradient : gradients)
        if (gradient.defined()) gradient.mul_(factor);
}

std::vector<std::vector<c10::IValue>> WholeReference::batches_of(size_t rank, int64_t step) {
    std::vector<std::vector<c10::IValue>> batches;
    for (int64_t m = 0; m < setup_.config().batch.accumulation_steps; ++m)
        batches.push_back(loaders_[rank]->take(step - 1, m));
    return batches;
}

// The weight of each micro batch's loss in the mean over a rank's; the mean over ranks comes on
// top.
double WholeReference::loss_weight(const std::vector<std::vector<std::vector<c10::IValue>>>& all) {
    const config::RunConfig& config = setup_.config();
    if (config.loss.mean == config::LossMean::kMicroBatch)
        return 1.0 / static_cast<double>(config.batch.accumulation_steps);
    int64_t counted = 0;
    for (const auto& batches : all)
        for (const std::vector<c10::IValue>& batch : batches)
            counted += graph::counted_targets(config.loss, batch.back());
    return static_cast<double>(all.size()) / static_cast<double>(std::max<int64_t>(1, counted));
}

std::vector<at::Tensor> WholeReference::buffers_now() const {
    std::vector<at::Tensor> values;
    for (const graph::ModelBuffer& buffer : model_.buffers())
        values.push_back(buffer.tensor.clone());
    return values;
}

void WholeReference::put_buffers(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < values.size(); ++b) model_.buffers()[b].tensor.copy_(values[b]);
}

void WholeReference::add_step(const std::vector<c10::IValue>& batch, const graph::DrawKey& key,
                              double weight, double loss_scale, Sums& sums) {
    const graph::ComputeContext context(true, whole_.lowered().compute_dtype);
    const std::vector<int> all = all_parameters(model_);
    Sums mine;
    mine.gradients.resize(all.size());
    {
        const graph::ParametersAs parameters(model_, all, whole_.lowered());
        graph::Boundary boundary = whole_.forward(0, whole_.first_inputs(batch), key);
        mine.loss = weight * graph::loss_of(boundary);
        whole_.store_states(boundary);
        graph::SegmentedModel::backward_loss(boundary, weight * loss_scale);
        for (const int p : all) {
            at::Tensor tensor = model_.parameters()[p].tensor;
            if (!tensor.grad().defined()) continue;
            mine.gradients[p] = flat_like(tensor, tensor.grad(), at::kFloat);
            tensor.mutable_grad().reset();
        }
    }
    const at::NoGradGuard no_grad;
    sums.add(mine);
}

void WholeReference::add_in_double(const std::vector<c10::IValue>& batch, const graph::DrawKey& key,
                                   double weight, double loss_scale, Sums& sums) {
    const graph::ComputeContext context(true);
    graph::GraphInputs inputs;
    for (const c10::IValue& value : whole_.first_inputs(batch))
        inputs.arguments.push_back(graph::map_tensors(value, to_double));
    for (const graph::ModelParameter& parameter : model_.parameters()) {
        const at::Tensor value = to_double(parameter.tensor);
        inputs.parameters.push_back(
            value.is_floating_point()
                ? value.clone().set_requires_grad(parameter.tensor.requires_grad())
                : value);
    }
    for (const graph::ModelBuffer& buffer : model_.buffers())
        inputs.buffers.push_back(to_double(buffer.tensor));
    inputs.key = key;
    const std::vector<c10::IValue> outputs =
        graph::WholeGraph(model_, in_double_, {}).run(inputs, {true, nullptr});
    const at::Tensor loss = outputs.front().toTensor();
    Sums mine;
    mine.loss = weight * loss.item<double>();
    torch::autograd::backward({loss},
                              {at::full(loss.sizes(), weight * loss_scale, loss.options())});
    mine.gradients.resize(inputs.parameters.size());
    for (size_t p = 0; p < inputs.parameters.size(); ++p)
        if (const at::Tensor& gradient = inputs.parameters[p].grad(); gradient.defined())
            mine.gradients[p] = flat_like(model_.parameters()[p].tensor, gradient, at::kDouble);
    const at::NoGradGuard no_grad;
    sums.add(mine);
}

void WholeReference::average_buffers() {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < model_.buffers().size(); ++b) {
        if (!model_.buffers()[b].tensor.is_floating_point()) continue;
        at::Tensor sum = to_double(buffers_[0][b]).clone();
        for (size_t rank = 1; rank < buffers_.size(); ++rank) sum += to_double(buffers_[rank][b]);
        for (std::vector<at::Tensor>& own : buffers_)
            own[b] = (sum / static_cast<double>(buffers_.size())).to(own[b].scalar_type());
    }
}

ReferenceStep WholeReference::run(int64_t step, double loss_scale) {
    std::optional<ScratchMemory::Scope> scope;
    if (scratch_) scope.emplace(*scratch_);
    const config::BatchConfig& batch = setup_.config().batch;
    std::vector<std::vector<std::vector<c10::IValue>>> all;
    for (size_t rank = 0; rank < loaders_.size(); ++rank) all.push_back(batches_of(rank, step));
    const double weight = loss_weight(all);
    const size_t ranks = all.size(), micro_steps = all.front().size();
    if (buffers_.empty() || setup_.config().broadcast_buffers)
        buffers_.assign(ranks, buffers_now());
    Sums exact;
    const auto add = [&](size_t rank, size_t m, Sums& sums) {
        const graph::DrawKey key{
            setup_.config().seed, step - 1,
            static_cast<int64_t>(m) * batch.data_parallel_size + static_cast<int64_t>(rank)};
        put_buffers(buffers_[rank]);
        add_in_double(all[rank][m], key, weight, loss_scale, exact);
        add_step(all[rank][m], key, weight, loss_scale, sums);
        buffers_[rank] = buffers_now();
    };
    // The order in which ZeRO adds up, for equal bits: up to stage 1 each rank its micro steps and
    // then all ranks, from stage 2 on all ranks in each micro step.
    const bool by_micro_step = setup_.config().zero.stage >= 2;
    Sums sums;
    for (size_t i = 0; i < (by_micro_step ? micro_steps : ranks); ++i) {
        Sums part;
        for (size_t j = 0; j < (by_micro_step ? ranks : micro_steps); ++j)
            by_micro_step ? add(j, i, part) : add(i, j, part);
        const at::NoGradGuard no_grad;
        if (by_micro_step) part.scale(1.0 / static_cast<double>(ranks));
        sums.add(part);
    }
    if (setup_.config().average_buffers) average_buffers();
    put_buffers(buffers_.front());
    const at::NoGradGuard no_grad;
    if (!by_micro_step) sums.scale(1.0 / static_cast<double>(ranks));
    exact.scale(1.0 / static_cast<double>(ranks));
    if (setup_.config().adds_ranks)
        for (Sums* const step_sums : {&sums, &exact})
            for (at::Tensor& gradient : step_sums->gradients)
                if (gradient.defined()) gradient.mul_(static_cast<double>(ranks));

    ReferenceStep result;
    result.loss = sums.loss;
    result.loss_bound = kOrders * std::abs(sums.loss - exact.loss) + 1e-6 * std::abs(exact.loss);
    result.gradients = std::move(sums.gradients);
    result.bounds.resize(result.gradients.size());
    double squares = 0;
    for (size_t p = 0; p < result.gradients.size(); ++p) {
        const at::Tensor& gradient = result.gradients[p];
        if (!gradient.defined()) continue;
        const double size = largest(exact.gradients[p]);
        result.bounds[p] =
            orders_of(gradient.numel()) * largest(gradient.to(at::kDouble) - exact.gradients[p]) +
            1e-6 * size;
        const at::Tensor real = gradient.to(at::kDouble) / loss_scale;
        squares += real.square().sum().item<double>();
    }
    result.norm = std::sqrt(squares);
    return result;
}

}  // namespace dslaunch::job
