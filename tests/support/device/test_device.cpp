#include "support/device/test_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/device/test_device_memory.h"

namespace dslaunch::test {

namespace {

using c10::IValue;
using torch::jit::Stack;

// LibTorch's slot for Habana's processors; LibTorch's builds have no operators for it. The slot
// PrivateUse1 cannot be used: it does not allow set_data on a module's tensors, which is needed to
// move TorchScript models.
constexpr c10::DeviceType kType = c10::kHPU;
constexpr c10::DispatchKey kKey = c10::DispatchKey::HPU;

std::array<std::atomic<ThreadStream*>, kTestDevices> g_streams{};
std::atomic<int64_t> g_at_once{0};
thread_local c10::DeviceIndex t_current = 0;

ThreadStream& stream_of(c10::DeviceIndex index) {
    ThreadStream* const stream = g_streams.at(static_cast<size_t>(index)).load();
    DSL_CHECK(stream != nullptr, "test device {} is not at work", static_cast<int>(index));
    return *stream;
}

// Tells LibTorch's profilers that memory was lent (CHANGE > 0) or returned.
void report(void* data, int64_t change, c10::DeviceIndex device) {
    c10::reportMemoryUsageToProfiler(data, change, 0, 0, c10::Device(kType, device));
}

// Overwrites memory after all work that is now on its device's stream, and returns it to the pool.
void free_device_memory(void* context) {
    if (context == nullptr) return;
    auto* const data = static_cast<std::byte*>(context);
    DeviceMemory& pool = DeviceMemory::instance();
    std::byte* const bytes = pool.kernel(data);
    const DeviceMemory::Loan loan = pool.loan(data);
    if (ThreadStream* const stream = g_streams.at(static_cast<size_t>(loan.device)).load())
        stream->put_now([bytes, loan] { std::memset(bytes, 0x7f, loan.bytes); });
    report(data, -static_cast<int64_t>(loan.asked), loan.device);
    pool.free(data);
}

class DeviceAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t bytes) override {
        std::byte* const data =
            bytes == 0 ? nullptr : DeviceMemory::instance().allocate(bytes, t_current);
        TORCH_CHECK_WITH(OutOfMemoryError, bytes == 0 || data != nullptr,
                         "the test device is out of memory: it was asked for ", bytes, " bytes");
        report(data, static_cast<int64_t>(bytes), t_current);
        return {data, data, &free_device_memory, c10::Device(kType, t_current)};
    }
    [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }
    void copy_data(void* to, const void* from, size_t bytes) const override {
        std::byte* const into = DeviceMemory::instance().kernel(to);
        const std::byte* const source = DeviceMemory::instance().kernel(const_cast<void*>(from));
        stream_of(t_current).put([=] { std::memcpy(into, source, bytes); });
    }
};

class DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  public:
    [[nodiscard]] c10::DeviceType type() const override { return kType; }
    [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
        return {kType, std::exchange(t_current, device.index())};
    }
    [[nodiscard]] c10::Device getDevice() const override { return {kType, t_current}; }
    void setDevice(c10::Device device) const override { t_current = device.index(); }
    void uncheckedSetDevice(c10::Device device) const noexcept override {
        t_current = device.index();
    }
    [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
    [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kTestDevices; }
    void synchronizeDevice(c10::DeviceIndex index) const override { stream_of(index).drain(); }
};

void grow(const c10::Storage& storage, size_t bytes) {
    c10::DataPtr fresh = c10::GetAllocator(kType)->allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) {
        std::byte* const into = DeviceMemory::instance().kernel(fresh.get());
        const std::byte* const from = DeviceMemory::instance().kernel(storage.mutable_data());
        stream_of(t_current).put([=] { std::memcpy(into, from, kept); });
    }
    storage.set_data_ptr(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

// If FROM was made from a number of the program, marks TO in the same way. Without the mark,
// LibTorch would promote dtypes differently.
void keep_number(const at::Tensor& from, at::Tensor& to) {
    if (from.unsafeGetTensorImpl()->is_wrapped_number())
        to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

// Returns TENSOR as a kernel sees it: a tensor of the CPU that has the device's bytes but does not
// own them, as on a GPU.
at::Tensor kernel_view(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const c10::InferenceMode normal(false);  // the stream's thread writes to it
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    at::Tensor view =
        tensor.numel() == 0
            ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
            : at::from_blob(DeviceMemory::instance().kernel(tensor.mutable_data_ptr()),
                            tensor.sizes(), tensor.strides(), options);
    keep_number(tensor, view);
    return view;
}

bool is_ours(const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().type() == kType;
}

// Calls change(tensor) for each tensor in VALUE, also in lists, and returns VALUE with the results.
template <typename Change>
IValue with_tensors(const IValue& value, const Change& change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isList()) {
        const c10::List<IValue> from = value.toList();
        c10::impl::GenericList list(from.elementType());
        for (const IValue& element : from.vec()) list.push_back(with_tensors(element, change));
        return list;
    }
    if (value.isDevice()) return c10::Device(c10::kCPU);
    return value;
}

const at::Tensor& resize_tensor(const at::Tensor& self, c10::IntArrayRef size,
                                std::optional<at::MemoryFormat> /*format*/) {
    if (self.sizes() == size) return self;
    auto* const impl = self.unsafeGetTensorImpl();
    impl->set_sizes_contiguous(size);
    const auto bytes = static_cast<size_t>((impl->numel() + impl->storage_offset()) *
                                           static_cast<int64_t>(self.element_size()));
    if (bytes > self.storage().nbytes()) grow(self.storage(), bytes);
    return self;
}

// Runs OP on STACK. For an operator with several out arguments, the results are references to the
// arguments, and LibTorch drops the arguments before it takes the results. Therefore the arguments
// are held here.
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKey key, Stack& stack) {
    const Stack held = stack;
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

// One call of an operator.
class Call {
  public:
    Call(const c10::OperatorHandle& op, const Stack& arguments)
        : op_(op), arguments_(arguments), device_(t_current) {
        std::optional<c10::Device> seen;
        for (const IValue& argument : arguments)
            static_cast<void>(with_tensors(argument, [&](const at::Tensor& tensor) {
                // A number of the program may be on any device.
                if (!tensor.defined() || (!is_ours(tensor) && tensor.dim() == 0)) return tensor;
                if (!is_ours(tensor) || (seen && *seen != tensor.device()))
                    throw std::runtime_error(fmt::format(
                        "{}: expected all tensors to be on one test device, found {} and {}",
                        c10::toString(op_.operator_name()), seen ? seen->str() : "none",
                        tensor.device().str()));
                seen = tensor.device();
                return tensor;
            }));
        if (seen) device_ = seen->index();
    }

    // Returns the results. Their values may be computed later.
    Stack run() {
        if (fills_with_random_numbers()) return fill_with_random_numbers();
        if (!can_run_later()) return run_at_once();
        std::optional<Stack> shapes = infer();
        if (!shapes) return run_at_once();
        Stack results = make_results(*shapes);
        std::vector<at::Tensor> into;
        for (const IValue& result : results) into.push_back(kernel_view(result.toTensor()));
        stream_of(device_).put([kernel = kernel(), into, written = aliases()] {
            const Stack computed = kernel();
            for (size_t i = 0; i < computed.size(); ++i)
                if (written[i] < 0 && into[i].defined()) into[i].copy_(computed[i].toTensor());
        });
        return results;
    }

  private:
    [[nodiscard]] const c10::FunctionSchema& schema() const { return op_.schema(); }

    // Returns true for bernoulli_ and similar operators, whose numbers do not depend on the
    // tensor's content.
    [[nodiscard]] bool fills_with_random_numbers() const {
        static const std::set<std::string> kFills = {"aten::bernoulli_", "aten::normal_",
                                                     "aten::uniform_"};
        return kFills.count(op_.operator_name().name) > 0 && !arguments_.at(1).isTensor();
    }

    // Draws the numbers now, so that their order is the order of the program. Does not wait for the
    // stream.
    Stack fill_with_random_numbers() {
        const at::Tensor& into = arguments_.front().toTensor();
        Stack stack = arguments_;
        stack.front() =
            at::empty_strided(into.sizes(), into.strides(), into.options().device(c10::kCPU));
        const at::AutoDispatchBelowAutograd below;
        run_boxed(op_, c10::DispatchKey::CPU, stack);
        stream_of(device_).put([into = kernel_view(into), numbers = stack.front().toTensor()] {
            into.copy_(numbers);
        });
        return {into};
    }

    // Returns false if the operator draws random numbers, which must be drawn in the order of the
    // program, or if it returns something other than tensors, which the host needs at once.
    [[nodiscard]] bool can_run_later() const {
        static const std::set<std::string> kRandom = {"aten::native_dropout",
                                                      "aten::rrelu_with_noise"};
        if (kRandom.count(op_.operator_name().name) > 0) return false;
        for (const c10::Argument& argument : schema().arguments())
            if (argument.name() == "generator") return false;
        return std::ranges::all_of(schema().returns(), [](const c10::Argument& result) {
            return result.type()->kind() == c10::TypeKind::TensorType;
        });
    }

    // Returns, for each result, the index of the argument that it is the same as, or -1.
    [[nodiscard]] std::vector<int> aliases() const {
        std::vector<int> found;
        for (const c10::Argument& result : schema().returns()) {
            int alias = -1;
            const c10::AliasInfo* const info = result.alias_info();
            for (size_t i = 0; info != nullptr && i < schema().arguments().size(); ++i) {
                const c10::AliasInfo* const other = schema().arguments()[i].alias_info();
                if (other != nullptr && other->isWrite() &&
                    other->beforeSets() == info->beforeSets())
                    alias = static_cast<int>(i);
            }
            if (info != nullptr && alias < 0)
                throw std::runtime_error(
                    fmt::format("{} makes a view, which the test device cannot",
                                c10::toString(op_.operator_name())));
            found.push_back(alias);
        }
        return found;
    }

    // Returns a function that runs the operator on the CPU, on the device's bytes.
    [[nodiscard]] std::function<Stack()> kernel() const {
        Stack views;
        for (const IValue& argument : arguments_)
            views.push_back(with_tensors(argument, [](const at::Tensor& tensor) {
                if (!tensor.defined() || is_ours(tensor)) return kernel_view(tensor);
                // The host may change its number as soon as this call returns.
                const c10::InferenceMode normal(false);
                at::Tensor copy = tensor.detach().clone();
                keep_number(tensor, copy);
                return copy;
            }));
        return [op = op_, views = std::move(views)] {
            const at::AutoDispatchBelowAutograd below;
            const at::NoGradGuard no_grad;
            Stack stack = views;
            op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
            return stack;
        };
    }

    // Returns the results on the meta device; nothing if that device does not have the operator.
    [[nodiscard]] std::optional<Stack> infer() const {
        static std::mutex mutex;
        static std::set<std::string> unknown;
        const std::string name = c10::toString(op_.operator_name());
        if (const std::lock_guard lock(mutex); unknown.count(name) > 0) return std::nullopt;
        const at::AutoDispatchBelowAutograd below;
        Stack stack;
        for (const IValue& argument : arguments_) {
            IValue meta = with_tensors(argument, [](const at::Tensor& tensor) {
                if (!tensor.defined()) return tensor;
                at::Tensor shape = at::empty_strided(tensor.sizes(), tensor.strides(),
                                                     tensor.options().device(c10::kMeta));
                keep_number(tensor, shape);
                return shape;
            });
            if (meta.isDevice()) meta = c10::Device(c10::kMeta);
            stack.push_back(std::move(meta));
        }
        try {
            run_boxed(op_, c10::DispatchKey::Meta, stack);
        } catch (const c10::Error&) {
            const std::lock_guard lock(mutex);
            unknown.insert(name);
            return std::nullopt;
        }
        return stack;
    }

    [[nodiscard]] Stack make_results(const Stack& shapes) const {
        const std::vector<int> written = aliases();
        Stack results;
        for (size_t i = 0; i < shapes.size(); ++i) {
            const at::Tensor& shape = shapes[i].toTensor();
            if (written[i] >= 0) {
                const at::Tensor& argument = arguments_[static_cast<size_t>(written[i])].toTensor();
                results.emplace_back(resize_tensor(argument, shape.sizes(), std::nullopt));
            } else if (!shape.defined()) {
                results.emplace_back(at::Tensor());
            } else {
                results.emplace_back(
                    at::empty_strided(shape.sizes(), shape.strides(),
                                      shape.options().device(c10::Device(kType, device_))));
            }
        }
        return results;
    }

    // Runs the operator on this thread, after the stream has done all earlier work.
    Stack run_at_once() {
        ++g_at_once;
        stream_of(device_).drain();
        const std::vector<int> written = aliases();
        Stack results = kernel()();
        for (size_t i = 0; i < results.size(); ++i) {
            if (written[i] < 0) {
                results[i] = on_device(results[i]);
                continue;
            }
            const at::Tensor computed = results[i].toTensor();
            const at::Tensor& argument = arguments_[static_cast<size_t>(written[i])].toTensor();
            // If the result was empty before, the kernel had no device memory to write it to.
            if (argument.sizes() != computed.sizes())
                kernel_view(resize_tensor(argument, computed.sizes(), std::nullopt))
                    .copy_(computed);
            results[i] = argument;
        }
        return results;
    }

    [[nodiscard]] IValue on_device(const IValue& result) const {
        return with_tensors(result, [&](const at::Tensor& tensor) {
            if (!tensor.defined()) return tensor;
            at::Tensor mine =
                at::empty_strided(tensor.sizes(), tensor.strides(),
                                  tensor.options().device(c10::Device(kType, device_)));
            kernel_view(mine).copy_(tensor);
            return mine;
        });
    }

    const c10::OperatorHandle& op_;
    const Stack& arguments_;
    c10::DeviceIndex device_;
};

void run_operator(const c10::OperatorHandle& op, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const Stack arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
    Stack results = Call(op, arguments).run();
    stack->resize(stack->size() - count);
    for (IValue& result : results) stack->push_back(std::move(result));
}

// Runs the convolution that LibTorch asks for on a backend that it does not know.
void run_convolution(const c10::OperatorHandle& /*op*/, Stack* stack) {
    static const c10::OperatorHandle convolution =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
    run_operator(convolution, stack);
}

void run_convolution_backward(const c10::OperatorHandle& /*op*/, Stack* stack) {
    static const c10::OperatorHandle backward =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
    constexpr ptrdiff_t kArguments = 10;  // without the sizes of the bias
    const auto first = stack->end() - kArguments;
    const at::Tensor& weight = (first + 2)->toTensor();
    const bool has_bias = (first + kArguments - 1)->toBoolList().get(2);
    const bool transposed = (first + 6)->toBool();
    const int64_t groups = (first + 8)->toInt();
    const int64_t outputs = transposed ? weight.size(1) * groups : weight.size(0);
    stack->insert(first + 3, has_bias ? IValue(std::vector<int64_t>{outputs}) : IValue());
    run_operator(backward, stack);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> /*pin_memory*/, std::optional<at::MemoryFormat> format) {
    const c10::DeviceGuard guard(device.value_or(kType));
    return at::detail::empty_generic(size, c10::GetAllocator(kType), c10::DispatchKeySet(kKey),
                                     dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<c10::Layout> /*layout*/,
                         std::optional<c10::Device> device, std::optional<bool> /*pin_memory*/) {
    const c10::DeviceGuard guard(device.value_or(kType));
    return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType),
                                             c10::DispatchKeySet(kKey), dtype.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
    if (to.numel() == 0) return to;
    if (is_ours(to)) {
        // The host may change or free its tensor as soon as this function returns.
        const at::Tensor source = is_ours(from) ? kernel_view(from) : from.detach().clone();
        stream_of(to.device().index()).put([into = kernel_view(to), source] {
            const at::AutoDispatchBelowAutograd below;
            into.copy_(source);
        });
        return to;
    }
    stream_of(from.device().index()).drain();
    to.copy_(kernel_view(from));
    return to;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
    stream_of(tensor.device().index()).drain();
    return kernel_view(tensor).item();
}

}  // namespace

// Casts the floating-point arguments to TYPE, and calls OP without autocast.
void call_in(at::ScalarType type, const c10::OperatorHandle& op, Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastHPU);
    const size_t count = op.schema().arguments().size();
    for (IValue& argument : std::span(*stack).last(count)) {
        if (argument.isTensor() && argument.toTensor().defined())
            argument = at::autocast::cached_cast(type, argument.toTensor(), kType);
    }
    op.callBoxed(stack);
}

void call_in_lower(const c10::OperatorHandle& op, Stack* stack) {
    call_in(at::autocast::get_autocast_dtype(kType), op, stack);
}

void call_in_fp32(const c10::OperatorHandle& op, Stack* stack) {
    call_in(at::kFloat, op, stack);
}

// Makes random numbers come from the CPU.
class HPUHooks final : public at::HPUHooksInterface {
  public:
    explicit HPUHooks(at::HPUHooksArgs /*arguments*/) {}
    void init() const override {}
    [[nodiscard]] bool isBuilt() const override { return true; }
    [[nodiscard]] bool isAvailable() const override { return true; }
    [[nodiscard]] bool hasHPU() const override { return true; }
    [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
    [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kTestDevices; }
    [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return t_current; }
    void setCurrentDevice(c10::DeviceIndex index) const override { t_current = index; }
    [[nodiscard]] const at::Generator& getDefaultGenerator(
        c10::DeviceIndex /*index*/) const override {
        return at::globalContext().defaultGenerator(c10::kCPU);
    }
};

}  // namespace dslaunch::test

namespace at {
using dslaunch::test::HPUHooks;
REGISTER_HPU_HOOKS(HPUHooks);
}  // namespace at

namespace dslaunch::test {

TORCH_LIBRARY_IMPL(_, HPU, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
    library.impl("empty.memory_format", &empty);
    library.impl("empty_strided", &empty_strided);
    library.impl("as_strided", &at::native::as_strided_tensorimpl);
    library.impl("view", &at::native::view);
    library.impl("_reshape_alias", &at::native::_reshape_alias);
    library.impl("unfold", &at::native::unfold);
    library.impl("convolution_overrideable",
                 torch::CppFunction::makeFromBoxedFunction<&run_convolution>());
    library.impl("convolution_backward_overrideable",
                 torch::CppFunction::makeFromBoxedFunction<&run_convolution_backward>());
    library.impl("_copy_from", &copy_from);
    library.impl("_local_scalar_dense", &local_scalar);
    library.impl("resize_", &resize_tensor);
}

TORCH_LIBRARY_IMPL(_, AutocastHPU, library) {
    library.fallback(torch::CppFunction::makeFallthrough());
}

// The operators that autocast casts on the CPU, as far as tests use them.
TORCH_LIBRARY_IMPL(aten, AutocastHPU, library) {
    for (const char* name : {"matmul", "linear", "mm", "bmm", "addmm", "baddbmm", "conv1d",
                             "conv2d", "scaled_dot_product_attention"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_in_lower>());
    for (const char* name : {"mse_loss", "nll_loss"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_in_fp32>());
}

void register_test_devices() {
    static DeviceAllocator allocator;
    static DeviceGuardImpl guard;
    static std::once_flag once;
    std::call_once(once, [] {
        c10::SetAllocator(kType, &allocator);
        static const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
    });
}

TestDevice::TestDevice(int index, uint64_t seed, Duration longest_delay)
    : index_(static_cast<c10::DeviceIndex>(index)),
      compute_(std::make_unique<ThreadStream>(seed, longest_delay)) {
    register_test_devices();
    ThreadStream* const before = g_streams.at(static_cast<size_t>(index)).exchange(compute_.get());
    DSL_CHECK(before == nullptr, "test device {} is at work already", index);
    t_current = index_;
}

TestDevice::~TestDevice() {
    compute_->finish();
    g_streams.at(static_cast<size_t>(index_)) = nullptr;
}

void* kernel_address(void* data) {
    return DeviceMemory::instance().kernel(data);
}

int64_t operators_at_once() {
    return g_at_once;
}

}  // namespace dslaunch::test
