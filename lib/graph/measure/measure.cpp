#include "graph/measure/measure.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text/torch_reason.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/parameters_as.h"
#include "graph/measure/operator_flops.h"
#include "graph/measure/tensor_meter.h"
#include "graph/measure/trial.h"
#include "graph/segment/compute_context.h"
#include "graph/writes/input_aliases.h"

namespace dslaunch::graph {

namespace {

// A record of what this thread's operators do while it exists: the storages that they allocate, and
// the FLOPs of their products.
class OperatorTrace {
  public:
    OperatorTrace() {
        // Autograd's device threads also run these callbacks, but must do nothing: current() is
        // null in these threads.
        at::RecordFunctionCallback callback(
            [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                if (current() != nullptr) current()->enter(call);
                return nullptr;
            },
            [](const at::RecordFunction& call, at::ObserverContext*) {
                if (current() != nullptr) current()->leave(call);
            });
        current() = this;
        handle_ = at::addThreadLocalCallback(
            callback.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
    }
    OperatorTrace(const OperatorTrace&) = delete;
    OperatorTrace& operator=(const OperatorTrace&) = delete;
    ~OperatorTrace() {
        at::removeCallback(handle_);
        current() = nullptr;
    }

    // Excludes the storage of TENSOR from the count. The storage exists already, but an operator
    // may return a view of it.
    void ignore(const at::Tensor& tensor) {
        if (tensor.has_storage())
            ignored_.emplace(tensor.storage().unsafeGetStorageImpl(),
                             tensor.storage().getWeakStorageImpl());
    }

    // Does the same as ignore(), until the next take_kept_bytes() or forget().
    void ignore_once(const at::Tensor& tensor) {
        passing_.insert(tensor.storage().unsafeGetStorageImpl());
    }

    // Returns the bytes of the storages that were allocated since the last forget() and are still
    // in use, and then forgets them.
    [[nodiscard]] int64_t take_kept_bytes() {
        int64_t kept = 0;
        for (const auto& [pointer, storage] : storages_)
            if (!storage.expired() && ignored_.count(pointer) == 0 && passing_.count(pointer) == 0)
                kept += static_cast<int64_t>(pointer->nbytes());
        forget();
        return kept;
    }
    // Forgets the storages and FLOPs that were recorded so far.
    void forget() {
        storages_.clear();
        passing_.clear();
        static_cast<void>(flops_.take());
    }
    // Returns the number of classes of the last cross entropy; 0 if there was none.
    [[nodiscard]] int64_t classes() const { return classes_; }
    [[nodiscard]] int64_t take_flops() { return flops_.take(); }

  private:
    static OperatorTrace*& current() {
        thread_local OperatorTrace* trace = nullptr;
        return trace;
    }

    void enter(const at::RecordFunction& call) {
        const bool counts = flops_.enter(call);
        if (counts && std::string_view(call.name()) == "aten::cross_entropy_loss")
            classes_ = class_count(own_inputs(call));
    }

    void leave(const at::RecordFunction& call) {
        flops_.leave(call);
        for (const IValue& output : own_outputs(call)) {
            for_each_tensor(output, [&](const at::Tensor& tensor) {
                if (tensor.has_storage())
                    storages_.emplace(tensor.storage().unsafeGetStorageImpl(),
                                      tensor.storage().getWeakStorageImpl());
            });
        }
    }

    static int64_t class_count(c10::ArrayRef<const IValue> inputs) {
        if (inputs.empty() || !inputs[0].isTensor()) return 0;
        const at::Tensor& rows = inputs[0].toTensor();
        return rows.dim() > 1 ? rows.size(1) : rows.numel();
    }

    at::CallbackHandle handle_ = 0;
    OperatorFlops flops_;
    int64_t classes_ = 0;
    // A weak reference does not keep the data alive, but it keeps the address from being used for
    // another storage.
    using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
    std::unordered_map<const c10::StorageImpl*, WeakStorage> storages_;
    std::unordered_map<const c10::StorageImpl*, WeakStorage> ignored_;
    std::unordered_set<const c10::StorageImpl*> passing_;
};

// Returns the bytes of one element of PARAMETER in the dtype in which segments read it.
int64_t element_bytes(const at::Tensor& parameter, const LoweredGraph& lowered) {
    const bool half =
        parameter.scalar_type() == at::kFloat && lowered.parameter_dtype != at::kFloat;
    return half ? 2 : static_cast<int64_t>(parameter.element_size());
}

plan::ModelInfo describe_parameters(const SegmentedModel& segmented) {
    plan::ModelInfo info;
    for (const ModelParameter& parameter : segmented.model().parameters())
        info.parameters.push_back(
            {parameter.name, parameter.tensor.numel(),
             element_bytes(parameter.tensor, segmented.lowered()), parameter.tensor.requires_grad(),
             parameter.tensor.dim() > 0 ? parameter.tensor.size(0) : 1,
             parameter.packed ? parameter.weight_numel() : 0, parameter.tensor.sizes().vec(),
             !parameter.packed && !is_trained_type(parameter.tensor.scalar_type())});
    for (const ModelBuffer& buffer : segmented.model().buffers())
        info.buffer_bytes += Bytes{static_cast<int64_t>(buffer.tensor.nbytes())};
    for (const Segment& segment : segmented.segments()) {
        plan::SegmentInfo made;
        made.name = segment.name;
        made.parameters = segmented.parameters_of(segment);
        made.nodes = segment.nodes;
        info.segments.push_back(std::move(made));
    }
    return info;
}

std::vector<at::Tensor> tensors_of(const Model& model) {
    std::vector<at::Tensor> tensors;
    for (const ModelParameter& parameter : model.parameters()) tensors.push_back(parameter.tensor);
    for (const ModelBuffer& buffer : model.buffers()) tensors.push_back(buffer.tensor);
    return tensors;
}

// Trial runs that measure the peak memory of each segment's backward. Segments of the same sort
// have the same peak, so only one of them is run.
class BackwardTrials {
  public:
    BackwardTrials(const SegmentedModel& segmented, TensorMeter& meter, bool splits)
        : segmented_(segmented), meter_(meter), splits_(splits) {}

    // Fills in INFO's backward fields for segment INDEX after its forward on INPUTS has returned
    // BOUNDARY. BEFORE: the meter's reading before that forward. Throws Error{kInput} if the
    // backward fails, and Error{kSetup} if memory runs out.
    void measure(size_t index, plan::SegmentInfo& info, Boundary boundary,
                 const std::vector<IValue>& inputs, const TensorMeter::Counts& before) {
        const auto [found, fresh] = peaks_.try_emplace(sort_of(index, info, inputs));
        if (fresh) found->second = run(index, info, std::move(boundary), inputs, before);
        info.backward_peak = found->second.peak;
        info.backward_blocks = found->second.blocks;
        info.weight_half_bytes = found->second.weight_half;
    }

  private:
    struct Peak {
        Bytes peak;
        Bytes blocks;
        Bytes weight_half;
    };

    // Returns the bytes of the tensors that were made since BEFORE and are still alive.
    [[nodiscard]] Bytes live_since(const TensorMeter::Counts& before) const {
        const TensorMeter::Counts now = meter_.live();
        return Bytes{now.small_bytes - before.small_bytes + now.large_bytes - before.large_bytes};
    }

    Peak run(size_t index, const plan::SegmentInfo& info, Boundary boundary,
             const std::vector<IValue>& inputs, const TensorMeter::Counts& before) {
        const int64_t kept = meter_.live().large_bytes;
        Bytes weight_half;
        meter_.restart_peak();
        try {
            TrialBackward trial{segmented_.model(),
                                info.parameters,
                                index + 1 == segmented_.segments().size(),
                                inputs,
                                {}};
            if (splits_)
                trial.between = [&](Bytes gradients) {
                    weight_half = live_since(before) - gradients;
                };
            trial.run(std::move(boundary));
        } catch (const std::exception& error) {
            if (is_memory_shortage(error))
                fail(ExitCode::kSetup, "the backward of segment {} ({}): {}", index, info.name,
                     memory_shortage_text(torch_reason(error)));
            fail(ExitCode::kInput, "the backward of segment {} ({}) failed: {}", index, info.name,
                 torch_reason(error));
        }
        return {Bytes{meter_.peak().small_bytes - before.small_bytes + kept - before.large_bytes},
                Bytes{meter_.peak().large_bytes - kept}, weight_half};
    }

    // Segments of one sort do the same work. (Equal layers share one Code.)
    using Sort = std::tuple<const Code*, int64_t, int64_t, int64_t, int64_t, int64_t>;

    [[nodiscard]] Sort sort_of(size_t index, const plan::SegmentInfo& info,
                               const std::vector<IValue>& inputs) const {
        int64_t trained = 0;
        for (const int parameter : info.parameters)
            trained += segmented_.model().parameters()[parameter].tensor.requires_grad();
        return {segmented_.segments()[index].code.get(),
                info.output_bytes.value,
                info.activation_bytes.value,
                info.forward_peak.value,
                trained,
                std::ssize(leaves_in(inputs))};
    }

    const SegmentedModel& segmented_;
    TensorMeter& meter_;
    bool splits_;
    std::map<Sort, Peak> peaks_;
};

// Returns the number of elements of the loss, and whether it needs a gradient. OUTPUTS: the outputs
// of the last segment. The first output is the loss.
LossFacts facts_of_loss(const std::vector<IValue>& outputs) {
    if (outputs.empty() || !outputs[0].isTensor()) return {};
    return {outputs[0].toTensor().numel(), outputs[0].toTensor().requires_grad()};
}

// Returns a text of everything that the work of segment INDEX depends on in a model without
// weights: its code, the shapes of the tensors that it reads, and its integer inputs. Empty if
// INPUTS contain any other value.
std::string shapes_read(const SegmentedModel& segmented, size_t index,
                        const plan::SegmentInfo& info, const std::vector<IValue>& inputs) {
    std::string key =
        fmt::format("{}", static_cast<const void*>(segmented.segments()[index].code.get()));
    const auto add = [&](const at::Tensor& tensor) {
        key +=
            fmt::format(" {} {}", static_cast<int>(tensor.scalar_type()), tensor.requires_grad());
        for (const int64_t size : tensor.sizes()) key += fmt::format(",{}", size);
    };
    for (const int parameter : info.parameters)
        add(segmented.model().parameters()[parameter].tensor);
    for (const IValue& input : inputs) {
        if (input.isTensor()) {
            add(input.toTensor());
        } else if (input.isInt()) {
            key += fmt::format(" {}", input.toInt());
        } else {
            return "";
        }
    }
    return key;
}

// Copies the measurements of LIKE to INFO.
void measure_like(plan::SegmentInfo& info, const plan::SegmentInfo& like) {
    plan::SegmentInfo made = like;
    made.name = info.name;
    made.parameters = info.parameters;
    made.nodes = info.nodes;
    info = std::move(made);
}

// Returns how often each of PARAMETERS was written in place.
std::vector<int64_t> versions_of(const Model& model, const std::vector<int>& parameters) {
    std::vector<int64_t> versions;
    for (const int parameter : parameters)
        versions.push_back(model.parameters()[parameter].tensor._version());
    return versions;
}

// Throws if segment INDEX has written a parameter, but no schema of its operators says so. A call
// that needs the module, or an operator of a library, can write in this way. VERSIONS: the versions
// of the parameters before the segment ran.
void refuse_hidden_writes(const SegmentedModel& segmented, size_t index,
                          const std::vector<int64_t>& versions) {
    const Segment& segment = segmented.segments()[index];
    const LoweredGraph& lowered = segmented.lowered();
    const std::vector<int> parameters = segmented.parameters_of(segment);
    const std::vector<int64_t> now = versions_of(segmented.model(), parameters);
    for (size_t i = 0; i < now.size(); ++i) {
        const bool is_known = std::ranges::any_of(
            lowered.in_place, [&](const auto& write) { return write.parameter == parameters[i]; });
        if (now[i] == versions[i] || is_known) continue;
        fail(ExitCode::kInput,
             "segment {} ({}) writes parameter `{}` in a call that cannot be analyzed{}; write it "
             "outside of forward, or with a torch operator in a method of a concrete module class",
             index, segment.name, segmented.model().parameters()[parameters[i]].name,
             lowered.opaque_node.empty() ? "" : fmt::format(" ({})", lowered.opaque_node));
    }
}

LossFacts trace_segments(const SegmentedModel& segmented, std::vector<IValue> inputs, bool split,
                         plan::ModelInfo& info) {
    const c10::Device device = segmented.lowered().device;
    TensorMeter meter(device.type());
    OperatorTrace trace;
    BackwardTrials backwards(segmented, meter, split);
    for (const at::Tensor& tensor : tensors_of(segmented.model())) trace.ignore(tensor);
    // Without weights, equal layers with equal shapes do equal work, so only one layer of each kind
    // runs.
    std::map<std::string, std::pair<size_t, std::vector<IValue>>> done;
    for (size_t s = 0; s < info.segments.size(); ++s) {
        plan::SegmentInfo& segment = info.segments[s];
        for (const IValue& input : inputs) {
            for_each_tensor(input, [&](const at::Tensor& tensor) { trace.ignore(tensor); });
        }
        const std::string key =
            segmented.model().has_weights() ? "" : shapes_read(segmented, s, segment, inputs);
        if (const auto found = done.find(key); found != done.end()) {
            measure_like(segment, info.segments[found->second.first]);
            inputs = found->second.second;
            continue;
        }
        // Parameters are cast and moved only while their segment runs, so that no rank ever stores
        // the whole model in 16 bits or on its GPU.
        std::optional<ParametersAs> parameters(std::in_place, segmented.model(), segment.parameters,
                                               segmented.lowered());
        for (const at::Tensor& tensor : parameters->brought()) trace.ignore_once(tensor);
        const TensorMeter::Counts before = meter.live();
        meter.restart_peak();
        const std::vector<int64_t> versions = versions_of(segmented.model(), segment.parameters);
        Boundary boundary = segmented.forward(s, inputs, {}, device);
        refuse_hidden_writes(segmented, s, versions);
        segment.forward_flops = trace.take_flops();
        const int64_t kept_large = meter.live().large_bytes;
        segment.forward_peak =
            Bytes{meter.peak().small_bytes - before.small_bytes + kept_large - before.large_bytes};
        segment.forward_blocks = Bytes{meter.peak().large_bytes - kept_large};
        segment.output_bytes = Bytes{boundary.bytes()};
        segment.backward = !boundary.producers.empty();
        // From here on, only the producers' autograd graph keeps alive the tensors that backward
        // needs.
        std::vector<IValue> outputs = std::move(boundary.values);
        segment.activation_bytes = Bytes{segment.backward ? trace.take_kept_bytes() : 0};
        if (segment.backward) backwards.measure(s, segment, std::move(boundary), inputs, before);
        trace.forget();
        parameters.reset();
        inputs = std::move(outputs);
        if (!key.empty()) done.try_emplace(key, s, inputs);
        // Pages that this segment read from the archive are not needed soon. Because they are
        // released here, a rank's peak memory during loading is the size of one segment, not of the
        // whole model.
        for (const int parameter : segment.parameters)
            static_cast<void>(segmented.model().release_pages(parameter));
    }
    info.loss_classes = trace.classes();
    return facts_of_loss(inputs);
}

}  // namespace

plan::ModelInfo measure(const SegmentedModel& segmented, const std::vector<IValue>& arguments,
                        bool split_backward, LossFacts* loss) {
    const ComputeContext context(true, segmented.lowered().compute_dtype,
                                 segmented.lowered().device.type());
    plan::ModelInfo info = describe_parameters(segmented);
    Boundary batch;
    batch.values = arguments;
    info.batch_bytes = Bytes{batch.bytes()};
    const KeptBuffers buffers(segmented.model(), segmented.lowered());
    const LossFacts found =
        trace_segments(segmented, segmented.first_inputs(arguments), split_backward, info);
    if (loss != nullptr) *loss = found;
    return info;
}

namespace {

std::vector<at::Tensor> copies_of(const Model& model) {
    std::vector<at::Tensor> copies;
    for (const ModelBuffer& buffer : model.buffers()) copies.push_back(buffer.tensor.clone());
    return copies;
}

// Returns true if A and B are equal. A NaN is equal to itself.
bool is_equal(const at::Tensor& a, const at::Tensor& b) {
    return at::logical_or(a == b, at::logical_and(a.isnan(), b.isnan())).all().item<bool>();
}

// Returns the buffers to which SEGMENT writes computed values, even if the new values are equal to
// the old values now: a buffer that copies a weight may be equal to it in the first step.
std::set<int> written_buffers(const Segment& segment) {
    std::set<int> buffers;
    const auto inputs = segment.graph->inputs();
    const size_t first = inputs.size() - segment.buffers.size();
    const std::set<const Value*> written =
        find_written_inputs(*segment.graph, WritesCounted::kByValues);
    for (size_t i = 0; i < segment.buffers.size(); ++i)
        if (written.count(inputs[first + i]) > 0) buffers.insert(segment.buffers[i]);
    return buffers;
}

}  // namespace

std::vector<std::vector<int>> moved_buffers(const SegmentedModel& segmented,
                                            const std::vector<IValue>& arguments) {
    const LoweredGraph& lowered = segmented.lowered();
    const ComputeContext context(false, lowered.compute_dtype, lowered.device.type());
    const Model& model = segmented.model();
    const KeptBuffers kept(model, lowered);
    std::vector<IValue> values = segmented.first_inputs(arguments);
    std::vector<std::vector<int>> moved;
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        const ParametersAs brought(model, segmented.parameters_of(segmented.segments()[s]),
                                   lowered);
        const std::vector<at::Tensor> before = copies_of(model);
        values = segmented.forward(s, values, {}, lowered.device).values;
        const std::set<int> written = written_buffers(segmented.segments()[s]);
        std::vector<int>& of_segment = moved.emplace_back();
        for (size_t b = 0; b < before.size(); ++b)
            if (written.count(static_cast<int>(b)) > 0 ||
                !is_equal(before[b], model.buffers()[b].tensor))
                of_segment.push_back(static_cast<int>(b));
    }
    return moved;
}

}  // namespace dslaunch::graph
