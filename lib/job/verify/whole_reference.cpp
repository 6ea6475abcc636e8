#include "job/verify/whole_reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "base/text.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/parameters_as.h"
#include "graph/lower/target_count.h"
#include "graph/memory/memory_order.h"
#include "graph/memory/shared_storage.h"
#include "graph/packed/packed_weight.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/new_values.h"
#include "graph/tensor/graph_facts.h"
#include "graph/tensor/tensor_check.h"
#include "job/setup/lower_options.h"

namespace dslaunch::job {

namespace {

// Returns the elements of GRADIENT as TYPE, in the order in which PARAMETER's elements are in
// memory.
at::Tensor flat_like(const at::Tensor& parameter, const at::Tensor& gradient, at::ScalarType type) {
    const at::NoGradGuard no_grad;
    const at::Tensor laid =
        at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options().dtype(type));
    laid.copy_(gradient);
    return graph::in_memory_order(laid).clone();
}

// Returns how many elements of memory the tensor spans, from its first element to its last.
int64_t reach_of(const at::Tensor& tensor) {
    int64_t last = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    return tensor.numel() == 0 ? 0 : last + 1;
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

std::vector<at::Tensor> tensors_of(const graph::Model& model) {
    std::vector<at::Tensor> tensors;
    for (const graph::ModelParameter& parameter : model.parameters())
        tensors.push_back(parameter.tensor);
    for (const graph::ModelBuffer& buffer : model.buffers()) tensors.push_back(buffer.tensor);
    return tensors;
}

void convert(std::vector<at::Tensor> tensors, at::ScalarType dtype) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> made = graph::copied_together(tensors, dtype);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].set_data(made[i]);
}

WholeReference::WholeReference(const JobSetup& setup, const std::string& path,
                               const std::string& scratch)
    : setup_(setup),
      scratch_(scratch.empty() ? nullptr : std::make_unique<ScratchMemory>(scratch)),
      path_(path),
      model_(load_with_room(path)),
      whole_(graph::SegmentedModel::make(
          model_, options_in(setup, graph::scalar_type_of(setup.config().precision.compute)), 1)),
      in_double_(graph::in_double(lowered_in_fp32(true))) {
    const config::RunConfig& config = setup.config();
    if (in_double_.takes_module)
        fail(ExitCode::kInput,
             "{} takes a whole module as an argument, so the graph cannot be computed in fp64 to "
             "estimate rounding errors; call a method of a concrete module class instead",
             in_double_.opaque_node);
    if (!whole_.states().empty() && config.batch.data_parallel_size > 1)
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, and each rank has its own, so one rank alone "
             "cannot compute the expected values; verify on one rank",
             whole_.states().front().path);
    for (int64_t rank = 0; rank < config.batch.data_parallel_size; ++rank)
        loaders_.push_back(std::make_unique<runtime::BatchLoader>(
            setup.data->train,
            runtime::BatchLoader::Options{config.batch, rank, config.seed, config.data.shuffle}));
    find_homes();
}

graph::Model WholeReference::load_with_room(const std::string& path) const {
    int64_t numel = 0;
    for (const graph::ModelParameter& parameter : setup_.whole_model().parameters())
        numel += parameter.tensor.numel();
    require_room(numel);
    return load_in_fp32(path);
}

// Returns the model at PATH with its weights in fp32, as training keeps them. If the job stores
// weights in fewer bits, the weights of the result are rounded to these bits. If the job has
// adapters, a layer with several names gets one adapter, as in the job.
graph::Model WholeReference::load_in_fp32(const std::string& path) const {
    const at::NoGradGuard no_grad;
    std::optional<ScratchMemory::Scope> scope;
    if (scratch_) scope.emplace(*scratch_);
    graph::Model model = setup_.config().lora.on()
                             ? graph::Model::load(path, graph::Weights::kRequired, setup_.trust)
                             : load_as_torch(path, setup_.kept_layers());
    std::set<const void*> narrow;  // storages that must be converted
    for (const graph::ModelParameter& parameter : model.parameters()) {
        const at::ScalarType type = parameter.tensor.scalar_type();
        if (graph::is_trained_type(type) && (type != at::kFloat || scope))
            narrow.insert(parameter.tensor.storage().data());
    }
    std::vector<at::Tensor> tensors = tensors_of(model);
    std::erase_if(tensors, [&](const at::Tensor& tensor) {
        return narrow.count(tensor.storage().data()) == 0;
    });
    convert(std::move(tensors), at::kFloat);
    for (const graph::ModelParameter& packed : setup_.model->parameters()) {
        if (!packed.packed) continue;
        const auto own =
            std::ranges::find(model.parameters(), packed.name, &graph::ModelParameter::name);
        at::Tensor tensor = own->tensor;
        tensor.set_data(packed.packed->rounded());
    }
    return model;
}

// Finds the reference's parameter or buffer with the same name for each parameter and buffer of the
// job. Then finds all other parameters of the reference that share memory with one of these.
void WholeReference::find_homes() {
    const auto name_of = [](const auto& item) { return item.name; };
    for (const graph::ModelParameter& parameter : setup_.whole_model().parameters()) {
        const auto found = std::ranges::find(model_.parameters(), parameter.name, name_of);
        if (found == model_.parameters().end())
            fail(ExitCode::kDiverged,
                 "the job trains {}, but the model as PyTorch loads it has no such parameter",
                 printable(parameter.name));
        parameter_of_.push_back(static_cast<int>(found - model_.parameters().begin()));
    }
    for (const graph::ModelBuffer& buffer : setup_.whole_model().buffers()) {
        const auto found = std::ranges::find(model_.buffers(), buffer.name, name_of);
        buffer_of_.push_back(found == model_.buffers().end()
                                 ? -1
                                 : static_cast<int>(found - model_.buffers().begin()));
    }
    std::map<const void*, std::vector<int>> in_storage;  // parameters of the job
    for (size_t p = 0; p < parameter_of_.size(); ++p)
        in_storage[parameter(static_cast<int>(p)).storage().data()].push_back(static_cast<int>(p));
    std::set<const void*> trained;
    for (size_t r = 0; r < model_.parameters().size(); ++r) {
        const at::Tensor& tensor = model_.parameters()[r].tensor;
        if (tensor.requires_grad()) trained.insert(tensor.storage().data());
        Place place{-1, tensor.sizes().vec(), tensor.strides().vec(), 0, reach_of(tensor)};
        const auto own = std::ranges::find(parameter_of_, static_cast<int>(r));
        if (own != parameter_of_.end()) place.owner = static_cast<int>(own - parameter_of_.begin());
        for (const int p : in_storage[tensor.storage().data()]) {
            const int64_t begin = tensor.storage_offset() - parameter(p).storage_offset();
            if (place.owner >= 0 || begin < 0 || begin >= reach_of(parameter(p))) continue;
            place.owner = p;
            place.offset = begin;
        }
        places_.push_back(std::move(place));
    }
    for (const graph::ModelBuffer& buffer : model_.buffers())
        if (trained.count(buffer.tensor.storage().data()) == 0 || buffer.tensor.numel() == 0)
            moving_.push_back(buffer.tensor);
}

const at::Tensor& WholeReference::parameter(int index) const {
    return model_.parameters()[parameter_of_[index]].tensor;
}

const at::Tensor* WholeReference::buffer(int index) const {
    return buffer_of_[index] < 0 ? nullptr : &model_.buffers()[buffer_of_[index]].tensor;
}

// Converts the gradients of LEAVES (one leaf per parameter of the reference) to TYPE and adds them
// to the gradients of the parameters with the same memory.
void WholeReference::take_gradients(std::span<const at::Tensor> leaves, at::ScalarType type,
                                    Sums& sums) const {
    const at::NoGradGuard no_grad;
    std::vector<std::vector<size_t>> of(parameter_of_.size());
    for (size_t r = 0; r < leaves.size(); ++r) {
        if (!leaves[r].grad().defined()) continue;
        if (places_[r].owner < 0)
            fail(
                ExitCode::kDiverged,
                "{} is trained in the model as PyTorch loads it, but the job has no such parameter",
                printable(model_.parameters()[r].name));
        of[static_cast<size_t>(places_[r].owner)].push_back(r);
    }
    sums.gradients.resize(of.size());
    for (size_t p = 0; p < of.size(); ++p) {
        if (of[p].empty()) continue;
        const Place& base = places_[static_cast<size_t>(parameter_of_[p])];
        const at::Tensor& first = leaves[of[p].front()].grad();
        if (of[p].size() == 1 && static_cast<int>(of[p].front()) == parameter_of_[p]) {
            sums.gradients[p] = flat_like(parameter(static_cast<int>(p)), first, type);
            continue;
        }
        const at::Tensor memory = at::zeros({base.reach}, first.options().dtype(type));
        for (const size_t r : of[p]) {
            const Place& place = places_[r];
            if (place.offset + place.reach > base.reach)
                fail(
                    ExitCode::kDiverged,
                    "{} shares memory with {} in the model as PyTorch loads it, but not in the job",
                    printable(model_.parameters()[r].name),
                    printable(model_.parameters()[static_cast<size_t>(parameter_of_[p])].name));
            memory.as_strided(place.sizes, place.strides, place.offset).add_(leaves[r].grad());
        }
        sums.gradients[p] =
            graph::in_memory_order(memory.as_strided(base.sizes, base.strides, 0)).clone();
    }
}

// Throws unless there is room for NUMEL parameters. Each needs a weight and a gradient in fp32 and
// in fp64, a copy in the compute dtype, and sums in both precisions.
void WholeReference::require_room(int64_t numel) const {
    constexpr int64_t kBytesPerElement = 4 + 4 + 2 + 2 * (4 + 8) + 8 + 8;
    const Bytes need{numel * kBytesPerElement};
    if (scratch_ != nullptr) {
        if (need > scratch_->left())
            fail(ExitCode::kDisk,
                 "--scratch {}: verify computes the whole model on rank 0, which needs {} for {} "
                 "parameters, but only {} are free on that disk",
                 printable(scratch_->folder()), to_text(need), numel, to_text(scratch_->left()));
        return;
    }
    const std::optional<MemoryLimit> limit = tightest_share(read_memory_state().limits, 1);
    if (limit && need > limit->left)
        fail(ExitCode::kSetup,
             "verify computes the whole model on rank 0 in addition to the job: this needs {} for "
             "{} parameters, but {} leaves only {} on its host; use --scratch DIR to name a folder "
             "on a disk with enough space, or verify a model with fewer layers",
             to_text(need), numel, limit->name, to_text(limit->left));
}

void WholeReference::Sums::add(const Sums& other) {
    const at::NoGradGuard no_grad;
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

// Returns the weight that each micro batch's loss gets when a rank averages its micro batches. The
// caller averages over the ranks.
double WholeReference::loss_weight(const std::vector<Batches>& all) {
    const config::RunConfig& config = setup_.config();
    const bool by_token = config.loss.mean == config::LossMean::kToken;
    if (!by_token && !whole_.lowered().targets)
        return 1.0 / static_cast<double>(config.batch.accumulation_steps);
    double counted = 0;
    for (const auto& batches : all)
        for (const Batch& batch : batches) {
            const double targets = whole_.lowered().targets->of(batch);
            counted += by_token ? targets : targets != 0 ? 1 : 0;
        }
    return counted > 0 ? static_cast<double>(all.size()) / counted : 0;
}

std::vector<at::Tensor> WholeReference::buffers_now() const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& buffer : moving_) values.push_back(buffer.clone());
    return values;
}

void WholeReference::put_buffers(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < values.size(); ++b) moving_[b].copy_(values[b]);
}

// Returns false if BATCH has no targets that count: a mean over no targets is not a number.
bool WholeReference::counts(const Batch& batch) const {
    return !whole_.lowered().targets || whole_.lowered().targets->of(batch) != 0;
}

void WholeReference::add_step(const Batch& batch, const graph::DrawKey& key, const Scale& scale,
                              Sums& sums) {
    const graph::ComputeContext context(true, whole_.lowered().compute_dtype);
    const std::vector<int> all = all_parameters(model_);
    Sums mine;
    {
        const graph::ParametersAs parameters(model_, all, whole_.lowered());
        graph::Boundary boundary = whole_.forward(0, whole_.first_inputs(batch), key);
        if (counts(batch)) mine.loss = scale.weight * graph::loss_of(boundary);
        whole_.store_states(boundary);
        graph::SegmentedModel::backward_loss(boundary, scale.weight * scale.loss);
        std::vector<at::Tensor> leaves;
        for (const graph::ModelParameter& parameter : model_.parameters())
            leaves.push_back(parameter.tensor);
        take_gradients(leaves, at::kFloat, mine);
        for (at::Tensor& leaf : leaves) leaf.mutable_grad().reset();
    }
    sums.add(mine);
}

// Returns what GRAPH computes from BATCH with all tensors in TYPE, and with the current weights and
// buffers. SCALE multiplies the loss and its gradients.
WholeReference::Sums WholeReference::computed(const graph::LoweredGraph& graph, at::ScalarType type,
                                              const Batch& batch, const graph::DrawKey& key,
                                              const Scale& scale) {
    const graph::ComputeContext context(true);
    graph::GraphInputs inputs;
    for (const c10::IValue& value : whole_.first_inputs(batch))
        inputs.arguments.push_back(type == at::kDouble ? graph::map_tensors(value, to_double)
                                                       : value);
    // Tensors that share memory must share it in the copies too, since forward may write buffers.
    const std::vector<at::Tensor> tensors = tensors_of(model_);
    std::vector<at::Tensor> copies = graph::copied_together(tensors, type);
    for (size_t i = 0; i < copies.size(); ++i) {
        const bool is_parameter = i < model_.parameters().size();
        if (is_parameter) copies[i].set_requires_grad(tensors[i].requires_grad());
        (is_parameter ? inputs.parameters : inputs.buffers).push_back(copies[i]);
    }
    inputs.key = key;
    const std::vector<c10::IValue> outputs =
        graph::WholeGraph(model_, graph, {}).run(inputs, {true, nullptr});
    const at::Tensor loss = outputs.front().toTensor();
    Sums mine;
    if (counts(batch)) mine.loss = scale.weight * loss.item<double>();
    const double root = scale.weight * scale.loss;
    torch::autograd::backward({loss}, {at::full(loss.sizes(), root, loss.options())});
    take_gradients(inputs.parameters, type, mine);
    return mine;
}

graph::LoweredGraph WholeReference::lowered_in_fp32(bool training) {
    graph::LowerOptions options = options_in(setup_, at::kFloat);
    options.trains = training;
    return graph::lower(model_, options);
}

void WholeReference::average_buffers() {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < moving_.size(); ++b) {
        if (!moving_[b].is_floating_point()) continue;
        at::Tensor sum = to_double(buffers_[0][b]).clone();
        for (size_t rank = 1; rank < buffers_.size(); ++rank) sum += to_double(buffers_[rank][b]);
        for (std::vector<at::Tensor>& own : buffers_)
            own[b] = (sum / static_cast<double>(buffers_.size())).to(own[b].scalar_type());
    }
}

// Assigns to the parameters the values that forward writes into them before it reads them.
void WholeReference::write_parameters() {
    const at::NoGradGuard no_grad;
    std::vector<std::pair<int, at::Tensor>> all;
    for (const graph::ParameterWrites& writes : whole_.lowered().writes) {
        std::vector<at::Tensor> read;
        for (const int p : writes.parameters)
            read.push_back(model_.parameters()[p].tensor.detach());
        const std::vector<at::Tensor> values = graph::new_values(model_, writes, read);
        for (size_t i = 0; i < values.size(); ++i) all.emplace_back(writes.written[i], values[i]);
    }
    for (const auto& [p, values] : all) model_.parameters()[p].tensor.detach().copy_(values);
}

ReferenceStep WholeReference::run(int64_t step, double loss_scale) {
    std::optional<ScratchMemory::Scope> scope;
    if (scratch_) scope.emplace(*scratch_);
    const config::BatchConfig& batch = setup_.config().batch;
    std::vector<Batches> all(loaders_.size());
    for (size_t rank = 0; rank < loaders_.size(); ++rank)
        for (int64_t m = 0; m < batch.accumulation_steps; ++m)
            all[rank].push_back(loaders_[rank]->take(step - 1, m));
    const double weight = loss_weight(all);
    const size_t ranks = all.size(), micro_steps = all.front().size();
    if (buffers_.empty() || setup_.config().broadcast_buffers)
        buffers_.assign(ranks, buffers_now());
    write_parameters();
    ReferenceStep result;
    if (step == 1) {
        put_buffers(buffers_.front());
        const auto counting =
            std::ranges::find_if(all.front(), [&](const Batch& micro) { return counts(micro); });
        if (counting != all.front().end()) result.graph_fault = compare_forward(*counting);
        model_.set_training(true);
    }
    Sums exact;
    const auto add = [&](size_t rank, size_t m, Sums& sums) {
        const graph::DrawKey key{
            setup_.config().seed, step - 1,
            static_cast<int64_t>(m) * batch.data_parallel_size + static_cast<int64_t>(rank)};
        put_buffers(buffers_[rank]);
        exact.add(computed(in_double_, at::kDouble, all[rank][m], key, {weight, loss_scale}));
        add_step(all[rank][m], key, {weight, loss_scale}, sums);
        buffers_[rank] = buffers_now();
    };
    // Adds in the same order as ZeRO, so that the bits are equal. Up to stage 1, sums the micro
    // steps of each rank, and then the ranks. From stage 2 on, sums the ranks in each micro step,
    // and then the micro steps.
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
        squares += (gradient.to(at::kDouble) / loss_scale).square().sum().item<double>();
    }
    result.norm = std::sqrt(squares);
    return result;
}

}  // namespace dslaunch::job
