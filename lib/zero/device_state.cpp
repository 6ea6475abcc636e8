#include "zero/device_state.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::zero {

// Neighbouring slices of a bucket that got a gradient and have had equally many updates.
struct DeviceState::Run {
    int64_t offset_numel = 0;  // offset in the flat buffers
    int64_t numel = 0;
    int64_t step = 1;
};

namespace {

c10::Device device_of_slices(const graph::Model& model, const plan::FlatLayout& layout) {
    DSL_CHECK(!layout.slices.empty(), "a model with nothing to train came this far");
    return model.parameters()[layout.slices[0].parameter].tensor.device();
}

float* data_of(const at::Tensor& flat, int64_t offset_numel) {
    return flat.mutable_data_ptr<float>() + offset_numel;
}

float* scalar_of(const at::Tensor& scalar) {
    return scalar.defined() ? scalar.mutable_data_ptr<float>() : nullptr;
}

// Squares of large models leave fp32's range, and their sum its precision.
at::Tensor norm_in_double(const at::Tensor& values) {
    return at::linalg_vector_norm(values, 2, at::OptionalIntArrayRef(), false, at::kDouble);
}

}  // namespace

DeviceState::DeviceState(graph::Model& model, const plan::FlatLayout& layout,
                         runtime::DeviceBackend& backend, runtime::Collectives& collectives,
                         const DeviceStateOptions& options)
    : model_(model),
      layout_(layout),
      backend_(backend),
      collectives_(collectives),
      options_(options),
      accumulates_(layout.buckets.size(), 0),
      used_(layout.slices.size(), 0),
      slice_steps_(layout.slices.size(), 0) {
    const at::NoGradGuard no_grad;
    join();
    const auto flat = at::TensorOptions().dtype(at::kFloat).device(device_of_slices(model, layout));
    parameters_ = at::zeros({layout.numel}, flat);
    adopt_parameters(model);
    gradients_ = at::zeros({layout.numel}, flat);
    if (options.accumulate) accumulated_ = at::zeros({layout.numel}, flat);
    const int64_t states = ShardOptimizer::states_per_parameter(options.optimizer);
    if (states >= 1) first_ = at::zeros({layout.numel}, flat);
    if (options.optimizer.kind == config::OptimizerKind::kAdagrad)
        first_.fill_(options.optimizer.initial_accumulator_value);
    if (states >= 2) second_ = at::zeros({layout.numel}, flat);
    if (options.saved != nullptr) resume_from(*options.saved);
    std::vector<at::Tensor> views;
    for (const plan::ParameterSlice& slice : layout.slices)
        views.push_back(view_of(gradients_, slice));
    collector_ = std::make_unique<GradientCollector>(model, layout, std::move(views));
}

// Only one rank can make the id, and only the CPU's collectives are there to bring it to the rest.
void DeviceState::join() {
    const runtime::Topology& topology = collectives_.topology();
    if (topology.world_size() == 1) return;
    const std::vector<std::string> ids =
        collectives_.all_gather(topology.rank() == 0 ? backend_.make_unique_id() : "");
    backend_.join({ids.front(), topology.rank(), topology.world_size(), options_.time_limit});
}

// The view has the parameter's own strides if they fill its elements without gaps, else plain rows.
at::Tensor DeviceState::view_of(const at::Tensor& flat, const plan::ParameterSlice& slice) const {
    const at::Tensor& parameter = model_.parameters()[slice.parameter].tensor;
    if (parameter.is_non_overlapping_and_dense())
        return flat.as_strided(parameter.sizes(), parameter.strides(), slice.offset_numel);
    return flat.narrow(0, slice.offset_numel, slice.numel).view(parameter.sizes());
}

void DeviceState::adopt_parameters(graph::Model& model) {
    std::vector<at::Tensor> views;
    for (const plan::ParameterSlice& slice : layout_.slices) {
        const graph::ModelParameter& parameter = model.parameters()[slice.parameter];
        if (parameter.tensor.scalar_type() != at::kFloat)
            fail(ExitCode::kInput,
                 "parameter {} is {}, but this version trains fp32 models; save the model with "
                 ".float()",
                 parameter.name, c10::toString(parameter.tensor.scalar_type()));
        views.push_back(view_of(parameters_, slice));
        views.back().copy_(parameter.tensor);
    }
    if (collectives_.topology().world_size() > 1) {
        const runtime::DeviceBuffer all{parameters_.mutable_data_ptr(), layout_.numel,
                                        runtime::DeviceDtype::kFloat32};
        device::Stream& compute = backend_.compute_stream();
        device::Stream& communication = backend_.communication_stream();
        const std::unique_ptr<device::Event> copied = compute.make_event();
        const std::unique_ptr<device::Event> brought = communication.make_event();
        compute.record(*copied);
        communication.wait(*copied);
        backend_.broadcast(all, 0);
        communication.record(*brought);
        compute.wait(*brought);
    }
    for (size_t i = 0; i < views.size(); ++i) {
        at::Tensor parameter = model.parameters()[layout_.slices[i].parameter].tensor;
        parameter.set_data(views[i]);
    }
}

void DeviceState::resume_from(runtime::SavedState& saved) {
    const auto bring = [&](at::Tensor& flat, int state) {
        if (!flat.defined()) return;
        at::Tensor values = flat.cpu();
        for (const plan::ParameterSlice& slice : layout_.slices) {
            float* const into = data_of(values, slice.offset_numel);
            const Range all{0, slice.numel};
            if (state == storage::kWeights) {
                saved.read_weights(slice.parameter, all, reinterpret_cast<std::byte*>(into),
                                   DType::kF32);
            } else if (saved.has_states(slice.parameter)) {
                saved.read_state(slice.parameter, state, all, into);
            }
        }
        flat.copy_(values);
    };
    bring(parameters_, storage::kWeights);
    bring(first_, 0);
    bring(second_, 1);
    for (size_t i = 0; i < slice_steps_.size(); ++i)
        slice_steps_[i] = saved.updates(layout_.slices[i].parameter);
}

std::vector<runtime::SavedPiece> DeviceState::saved_pieces() {
    const runtime::Topology& topology = collectives_.topology();
    const Range own = part_range(layout_.numel, {topology.rank(), topology.world_size()});
    on_cpu_.clear();
    std::vector<runtime::SavedPiece> pieces;
    int state = storage::kWeights;
    for (const at::Tensor* flat : {&parameters_, &first_, &second_}) {
        if (!flat->defined()) continue;
        on_cpu_.push_back(flat->narrow(0, own.begin, own.numel).cpu());
        const auto* const values = on_cpu_.back().const_data_ptr<float>();
        for (const plan::ParameterSlice& slice : layout_.slices) {
            const Range both = intersect(own, {slice.offset_numel, slice.numel});
            if (both.numel == 0) continue;
            pieces.push_back({slice.parameter,
                              state,
                              {both.begin - slice.offset_numel, both.numel},
                              reinterpret_cast<const std::byte*>(values + both.begin - own.begin),
                              /*unit=*/0});
        }
        ++state;
    }
    return pieces;
}

std::optional<int64_t> DeviceState::updates_of(int parameter) const {
    const int slice = layout_.slice_of(parameter);
    if (slice < 0) return std::nullopt;
    return slice_steps_[slice];
}

at::Tensor DeviceState::untrained_values(int parameter) const {
    return model_.parameters()[parameter].tensor;
}

runtime::MemoryAccount DeviceState::memory() const {
    const auto bytes_of = [](const at::Tensor& tensor) {
        return Bytes{tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0};
    };
    runtime::MemoryAccount account;
    account.parameters = bytes_of(parameters_);
    account.gradients = bytes_of(gradients_) + bytes_of(accumulated_);
    account.moments = bytes_of(first_) + bytes_of(second_);
    return account;
}

void DeviceState::begin_step(const runtime::StepSettings& settings) {
    step_ = settings.step;
    lr_ = settings.lr;
    usage_known_ = false;
    std::fill(used_.begin(), used_.end(), 0);
    std::fill(accumulates_.begin(), accumulates_.end(), 0);
    for (at::Tensor* scalar : {&norm_on_device_, &divisor_, &skip_}) scalar->reset();
}

void DeviceState::run(const plan::Instruction& instruction) {
    const at::NoGradGuard no_grad;
    const int b = instruction.bucket;
    switch (instruction.op) {
        case plan::Op::kClaim:
            return collector_->claim(bucket(b));
        case plan::Op::kPost:
            return post(b);
        case plan::Op::kReduce:
            return reduce(b);
        case plan::Op::kAccumulate:
            return accumulate(b);
        case plan::Op::kNorm:
            return compute_norm();
        case plan::Op::kUpdate:
            return update(b);
        default:
            DSL_CHECK(false, "{} is not for the device's state", plan::op_name(instruction.op));
    }
}

void DeviceState::post(int b) {
    const auto slices = static_cast<size_t>(bucket(b).end_slice - bucket(b).first_slice);
    std::vector<float> used(slices);
    collector_->complete(bucket(b), used);
    for (size_t i = 0; i < slices; ++i) {
        double& in_step = used_[static_cast<size_t>(bucket(b).first_slice) + i];
        in_step = std::max(in_step, static_cast<double>(used[i]));
    }
}

void DeviceState::reduce(int b) {
    if (collectives_.topology().world_size() == 1) return;
    const runtime::DeviceBuffer buffer{data_of(gradients_, bucket(b).offset_numel), bucket(b).numel,
                                       runtime::DeviceDtype::kFloat32};
    backend_.all_reduce(buffer, runtime::DeviceReduction::kMean);
}

at::Tensor DeviceState::part(const at::Tensor& flat, const plan::Bucket& bucket) const {
    return flat.narrow(0, bucket.offset_numel, bucket.numel);
}

void DeviceState::accumulate(int b) {
    const auto i = static_cast<size_t>(b);
    at::Tensor sum = part(accumulated_, bucket(b));
    if (accumulates_[i] == 0) {
        sum.copy_(part(gradients_, bucket(b)));
    } else {
        sum.add_(part(gradients_, bucket(b)));
    }
    accumulates_[i] = 1;
}

// The clip factor stays on the device: the updates behind it divide by it without anyone having
// read it.
void DeviceState::compute_norm() {
    std::vector<at::Tensor> norms;
    for (const plan::Bucket& bucket : layout_.buckets)
        norms.push_back(norm_in_double(part(summed(), bucket)));
    norm_on_device_ = norm_in_double(at::stack(norms)).reshape({1});
    // The divisor is the inverse of torch.nn.utils.clip_grad_norm_'s factor.
    divisor_ = ((norm_on_device_ + 1e-6) / options_.gradient_clipping).clamp_min(1).to(at::kFloat);
    skip_ = norm_on_device_.isfinite().logical_not().to(at::kFloat);
}

// A gradient that some rank had belongs to all: its parameter is updated everywhere.
void DeviceState::agree_on_usage() {
    if (usage_known_) return;
    usage_known_ = true;
    const bool first = used_before_.empty();
    if (first || options_.usage_varies) {
        ranks_used_ = used_;
        collectives_.sum_ordered(ranks_used_);
        if (first) used_before_ = used_;
        return;
    }
    DSL_CHECK(used_ == used_before_,
              "other parameters than in the first step got a gradient in step {}, though the model "
              "has no branch",
              step_);
}

std::vector<DeviceState::Run> DeviceState::find_runs(const plan::Bucket& bucket) {
    std::vector<Run> runs;
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        if (ranks_used_[i] <= 0) continue;
        const plan::ParameterSlice& slice = layout_.slices[i];
        const int64_t step = ++slice_steps_[i];
        const int64_t numel = round_up(slice.numel, plan::kSliceAlignmentNumel);
        if (!runs.empty() && runs.back().step == step &&
            runs.back().offset_numel + runs.back().numel == slice.offset_numel) {
            runs.back().numel += numel;
        } else {
            runs.push_back({slice.offset_numel, numel, step});
        }
    }
    return runs;
}

void DeviceState::update(int b) {
    agree_on_usage();
    for (const Run& run : find_runs(bucket(b))) update_run(run);
}

void DeviceState::update_run(const Run& run) {
    switch (options_.optimizer.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
            return adam(run);
        case config::OptimizerKind::kSgd:
            return sgd(run);
        case config::OptimizerKind::kAdagrad:
            return adagrad(run);
        case config::OptimizerKind::kLion:
            return lion(run);
    }
}

void DeviceState::adam(const Run& run) {
    const config::OptimizerConfig& config = options_.optimizer;
    runtime::DeviceAdam adam;
    adam.parameters = data_of(parameters_, run.offset_numel);
    adam.gradients = data_of(summed(), run.offset_numel);
    adam.momentum = data_of(first_, run.offset_numel);
    adam.variance = data_of(second_, run.offset_numel);
    adam.numel = run.numel;
    adam.gradient_divisor = scalar_of(divisor_);
    adam.skip = scalar_of(skip_);
    adam.lr = lr_;
    adam.beta1 = config.beta1;
    adam.beta2 = config.beta2;
    adam.eps = config.eps;
    adam.weight_decay = config.weight_decay;
    adam.decoupled_decay = config.kind == config::OptimizerKind::kAdamW;
    adam.bias_correction = config.bias_correction;
    adam.step = run.step;
    backend_.adam(adam);
}

at::Tensor DeviceState::part(const at::Tensor& flat, const Run& run) const {
    return flat.narrow(0, run.offset_numel, run.numel);
}

// Returns the gradient, clipped and with L2 decay added.
at::Tensor DeviceState::gradient_of(const Run& run) const {
    at::Tensor gradient = part(summed(), run);
    if (divisor_.defined()) gradient = gradient.div(divisor_);
    if (options_.optimizer.decays_gradient())
        gradient = gradient.add(part(parameters_, run), options_.optimizer.weight_decay);
    return gradient;
}

// The update is torch.optim.SGD's. The first update's momentum is the gradient itself.
void DeviceState::sgd(const Run& run) {
    const config::OptimizerConfig& config = options_.optimizer;
    at::Tensor gradient = gradient_of(run);
    if (config.momentum != 0) {
        at::Tensor momentum = part(first_, run);
        if (run.step == 1) {
            momentum.copy_(gradient);
        } else {
            momentum.mul_(config.momentum).add_(gradient, 1 - config.dampening);
        }
        gradient = config.nesterov ? gradient.add(momentum, config.momentum) : momentum;
    }
    part(parameters_, run).add_(gradient, -lr_);
}

// The update is torch.optim.Adagrad's.
void DeviceState::adagrad(const Run& run) {
    const config::OptimizerConfig& config = options_.optimizer;
    const at::Tensor gradient = gradient_of(run);
    at::Tensor sum = part(first_, run);
    sum.addcmul_(gradient, gradient);
    const double lr = lr_ / (1 + static_cast<double>(run.step - 1) * config.lr_decay);
    part(parameters_, run).addcdiv_(gradient, sum.sqrt().add_(config.eps), -lr);
}

void DeviceState::lion(const Run& run) {
    const config::OptimizerConfig& config = options_.optimizer;
    const at::Tensor gradient = gradient_of(run);
    at::Tensor momentum = part(first_, run);
    const at::Tensor way = momentum.mul(config.beta1).add_(gradient, 1 - config.beta1).sign_();
    momentum.mul_(config.beta2).add_(gradient, 1 - config.beta2);
    part(parameters_, run).mul_(1 - lr_ * config.weight_decay).add_(way, -lr_);
}

void DeviceState::finish_step() {
    if (!norm_on_device_.defined()) return;
    norm_ = norm_on_device_.item<double>();
    if (!std::isfinite(*norm_)) name_bad_gradient();
}

void DeviceState::name_bad_gradient() const {
    for (const plan::ParameterSlice& slice : layout_.slices) {
        if (view_of(summed(), slice).isfinite().all().item<bool>()) continue;
        fail(ExitCode::kDiverged,
             "the gradient of {} is not finite in step {}: training has diverged; lower the "
             "learning rate or look at the data of this step",
             model_.parameters()[slice.parameter].name, step_);
    }
    fail(ExitCode::kDiverged, "the gradient norm overflows in step {}", step_);
}

}  // namespace dslaunch::zero
