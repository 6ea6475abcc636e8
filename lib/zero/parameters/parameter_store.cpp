#include "zero/parameters/parameter_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/archive/scalar_types.h"
#include "graph/memory/memory_order.h"
#include "graph/packed/packed_weight.h"
#include "zero/parameters/flat_view.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

ParameterSlices ParameterStore::add_slices(const ShardMap& map, DType dtype,
                                           std::span<const int64_t> buffer_numel,
                                           runtime::ArenaLayout& arena) {
    const int64_t element = dtype_bytes(dtype);
    ParameterSlices slices;
    int64_t whole_numel = 0;
    for (size_t b = 0; b < map.layout().buckets.size(); ++b) {
        if (!map.is_gathered(static_cast<int>(b))) whole_numel += map.layout().buckets[b].numel;
        slices.updated.push_back(arena.add_signal(fmt::format("parameters of bucket {}", b)));
        slices.gathered.push_back(
            arena.add_signal(fmt::format("parameters of bucket {} from other hosts", b)));
    }
    slices.whole =
        arena.add_shared("parameters", Bytes{std::max<int64_t>(whole_numel, 1) * element});
    if (map.shard_numel() > 0)
        slices.shards = arena.add_shared("parameter shards", Bytes{map.shard_numel() * element});
    for (size_t k = 0; k < buffer_numel.size(); ++k) {
        const std::string name = fmt::format("gathered parameters {}", k);
        slices.buffers.push_back(arena.add_shared(name, Bytes{buffer_numel[k] * element}));
        slices.copied.push_back(arena.add_signal(name + " copied"));
        slices.filled.push_back(arena.add_signal(name + " filled"));
        slices.released.push_back(arena.add_signal(name + " released"));
    }
    return slices;
}

ParameterStore::ParameterStore(graph::Model& model, const ShardMap& map,
                               const ParameterSlices& slices, DType dtype,
                               const TensorDevice& device, const runtime::Arena& arena,
                               runtime::HostGroup& group, runtime::Collectives& collectives,
                               StateStore& states, runtime::SavedState* saved)
    : map_(map),
      slices_(slices),
      dtype_(dtype),
      device_(device),
      arena_(arena),
      group_(group),
      collectives_(collectives),
      states_(states),
      buffer_uses_(slices.buffers.size(), 0) {
    int64_t whole_numel = 0;
    int64_t bytes_max = 0;
    for (int b = 0; b < static_cast<int>(map.layout().buckets.size()); ++b) {
        const int64_t numel = map.layout().buckets[b].numel;
        Home& home = homes_.emplace_back();
        if (!map.is_gathered(b)) {
            home.whole_offset = whole_numel;
            whole_numel += numel;
            continue;
        }
        bytes_max = std::max(bytes_max, numel * element_bytes());
        for (size_t k = 0; k < slices.buffers.size() && home.buffer < 0; ++k)
            if (std::ssize(arena.shared(slices.buffers[k])) >= numel * element_bytes())
                home.buffer = static_cast<int>(k);
    }
    if (bytes_max > 0) tripwire_ = Tripwire(bytes_max);
    adopt(model, saved);
}

ParameterStore::Tripwire::Tripwire(int64_t bytes) {
    void* address = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        fail(ExitCode::kSetup, "cannot reserve {} bytes of address space for released parameters",
             bytes);
    memory_ = {static_cast<std::byte*>(address), static_cast<size_t>(bytes)};
}

ParameterStore::Tripwire::~Tripwire() {
    if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

void ParameterStore::adopt(graph::Model& model, runtime::SavedState* saved) {
    const at::NoGradGuard no_grad;
    const plan::FlatLayout& layout = map_.layout();
    Values values{model, {}, saved};
    for (const plan::ParameterSlice& slice : layout.slices) {
        const graph::ModelParameter& parameter = model.parameters()[slice.parameter];
        const at::ScalarType type = parameter.tensor.scalar_type();
        DSL_CHECK(parameter.packed || graph::is_trained_type(type),
                  "parameter {} has type {}, which buckets do not support", parameter.name,
                  c10::toString(type));
        values.loaded.push_back(graph::in_memory_order(parameter.tensor).to(at::kCPU));
    }
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
        fill(b, values);
        // Master copies get the archive's values, not the rounded values of the 16-bit copy.
        for (const int c : states_.chunks_of(b))
            states_.put(c, dtype_, [&](const Range& range, std::byte* into, DType dtype) {
                copy_range(b, range, values, into, dtype);
            });
        // Releases the archive's pages that were just copied: training does not read them again.
        const plan::Bucket& bucket = layout.buckets[b];
        for (int i = bucket.first_slice; i < bucket.end_slice; ++i)
            static_cast<void>(model.release_pages(layout.slices[i].parameter));
    }
    frozen_as_read_.resize(layout.slices.size() - static_cast<size_t>(layout.trained_slices));
    for (size_t i = 0; i < frozen_as_read_.size(); ++i) {
        const int slice = layout.trained_slices + static_cast<int>(i);
        const bool elsewhere = !device_.device->is_host() || dtype_ != DType::kF32 ||
                               values.loaded[slice].scalar_type() != at::kFloat;
        if (elsewhere || map_.is_gathered(layout.bucket_of(slice)))
            frozen_as_read_[i] = values.loaded[slice];
    }
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
        const plan::Bucket& bucket = layout.buckets[b];
        std::byte* base = map_.is_gathered(b) ? tripwire_.data() : kept(b, 0);
        for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
            const plan::ParameterSlice& slice = layout.slices[i];
            at::Tensor tensor = model.parameters()[slice.parameter].tensor;
            const int64_t offset = slice.offset_numel - bucket.offset_numel;
            const at::Tensor view = view_like(tensor, base + offset * element_bytes(),
                                              graph::scalar_type_of(dtype_), device_.name);
            storages_.push_back(view.storage());
            tensor.set_data(view);
        }
    }
    // Evaluation may read parameters that training does not.
    for (size_t i = 0; i < model.parameters().size(); ++i) {
        at::Tensor tensor = model.parameters()[i].tensor;
        if (layout.slice_of(static_cast<int>(i)) < 0 && tensor.device() != device_.name)
            tensor.set_data(tensor.to(device_.name));
    }
    device_.device->compute().finish();
    group_.barrier();
}

at::Tensor ParameterStore::frozen_values(int slice, const at::Tensor& tensor) const {
    const auto i = static_cast<size_t>(slice - map_.layout().trained_slices);
    return frozen_as_read_[i].defined() ? frozen_as_read_[i] : tensor;
}

// Fills a bucket. Each local rank fills its own shards of a gathered bucket, or an equal part of a
// bucket that the host keeps whole.
void ParameterStore::fill(int b, const Values& values) {
    if (!map_.is_gathered(b)) {
        const int64_t numel = map_.layout().buckets[b].numel;
        const Range part = part_range(numel, {group_.local_rank(), group_.local_world_size()});
        if (part.numel > 0) copy_range(b, part, values, kept(b, part.begin), dtype_);
        return;
    }
    if (map_.parameters_offloaded()) return;
    for (const Range& range : map_.own_ranges(b))
        copy_range(b, range, values, kept(b, range.begin), dtype_);
}

// Copies the loaded values of elements RANGE of a bucket to INTO.
void ParameterStore::copy_range(int b, const Range& range, const Values& values, std::byte* into,
                                DType dtype) const {
    for_each_slice(map_.layout(), b, range, [&](int i, const Range& elements, int64_t begin) {
        const int parameter = map_.layout().slices[i].parameter;
        const auto write = [&](std::byte* host) {
            if (values.saved != nullptr && i < map_.layout().trained_slices)
                return values.saved->read_weights(parameter, elements, host, dtype);
            const auto& packed = values.model.parameters()[parameter].packed;
            if (packed) return packed->read(elements, host);
            at::from_blob(host, {elements.numel}, graph::scalar_type_of(dtype))
                .copy_(values.loaded[i].narrow(0, elements.begin, elements.numel));
        };
        write_from_host(*device_.device, into + (begin - range.begin) * dtype_bytes(dtype),
                        elements.numel * dtype_bytes(dtype), write);
    });
}

std::byte* ParameterStore::kept(int b, int64_t element) const {
    const int64_t offset =
        map_.is_gathered(b) ? map_.shard_offset(b, element) : homes_[b].whole_offset + element;
    const runtime::SliceId slice = map_.is_gathered(b) ? slices_.shards : slices_.whole;
    return arena_.shared(slice).data() + offset * element_bytes();
}

void ParameterStore::point_to(int b, std::byte* base) {
    const plan::Bucket& bucket = map_.layout().buckets[b];
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        const int64_t offset = map_.layout().slices[i].offset_numel - bucket.offset_numel;
        // Tensors that autograd has saved share the storage, so they point to the new memory too.
        storages_[i].unsafeGetStorageImpl()->set_data_ptr_noswap(
            at::DataPtr(base + offset * element_bytes(), device_.name));
    }
}

void ParameterStore::post_updated(int b, int64_t step) {
    group_.post(slices_.updated[b], static_cast<uint32_t>(step));
}

void ParameterStore::await_whole(int b, int64_t step) {
    if (step == 0) return;
    if (map_.copies_on_hosts())
        return group_.await_all(slices_.updated[b], static_cast<uint32_t>(step));
    for (int bridge = 0; bridge < map_.topology().bridge_count(); ++bridge)
        group_.await(slices_.gathered[b], bridge, static_cast<uint32_t>(step));
}

void ParameterStore::gather_in_place(int b, int64_t step) {
    if (!map_.topology().is_bridge()) return;
    group_.await_all(slices_.updated[b], static_cast<uint32_t>(step));
    const auto bytes = static_cast<size_t>(map_.layout().buckets[b].numel * element_bytes());
    collectives_.gather_ranges({kept(b, 0), bytes}, element_bytes(), map_.node_ranges(b));
    group_.post(slices_.gathered[b], static_cast<uint32_t>(step));
}

// Waits until all readers have released the previous contents of BUFFER, and returns its memory.
std::byte* ParameterStore::begin_use(int buffer) {
    const auto k = static_cast<size_t>(buffer);
    group_.await_all(slices_.released[k], buffer_uses_[k]++);
    return arena_.shared(slices_.buffers[k]).data();
}

void ParameterStore::bring(int b, int buffer) {
    states_.read_parameters(b, begin_use(buffer));
}

void ParameterStore::gather(int b, int buffer, int64_t step, WirePacking packing) {
    const auto k = static_cast<size_t>(buffer);
    std::byte* const base = arena_.shared(slices_.buffers[k]).data();
    if (!map_.parameters_offloaded()) {
        static_cast<void>(begin_use(buffer));
        if (step > 0 && b < map_.layout().trained_buckets)
            group_.await_all(slices_.updated[b], static_cast<uint32_t>(step));
        for (const Range& range : map_.own_ranges(b))
            device_.device->communication().copy(base + range.begin * element_bytes(),
                                                 kept(b, range.begin),
                                                 range.numel * element_bytes());
    }
    const uint32_t use = buffer_uses_[k];
    group_.post(slices_.copied[k], use);
    if (!map_.shards_over_hosts()) {
        group_.await_all(slices_.copied[k], use);
        return point_to(b, base);
    }
    if (map_.topology().is_bridge()) {
        group_.await_all(slices_.copied[k], use);
        const auto bytes = static_cast<size_t>(map_.layout().buckets[b].numel * element_bytes());
        collectives_.gather_ranges({base, bytes}, element_bytes(), map_.node_ranges(b),
                                   {packing, dtype_});
        group_.post(slices_.filled[k], use);
    }
    for (int bridge = 0; bridge < map_.topology().bridge_count(); ++bridge)
        group_.await(slices_.filled[k], bridge, use);
    point_to(b, base);
}

void ParameterStore::release(int b, int buffer) {
    point_to(b, tripwire_.data());
    group_.post(slices_.released[buffer], buffer_uses_[buffer]);
}

std::vector<int> ParameterStore::buckets_of(std::span<const int> parameters) const {
    std::vector<int> buckets;
    for (const int parameter : parameters) {
        const int slice = map_.layout().slice_of(parameter);
        if (slice < 0) continue;
        const int b = map_.layout().bucket_of(slice);
        // If no parameter of a bucket has elements, the bucket has no buffer and needs no
        // gathering.
        if (map_.is_gathered(b) && homes_[b].buffer >= 0) buckets.push_back(b);
    }
    std::sort(buckets.begin(), buckets.end());
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
    return buckets;
}

void ParameterStore::hold(std::span<const int> parameters, int64_t step, bool keep) {
    DSL_CHECK(held_.empty(), "parameters are already held");
    for (const int b : buckets_of(parameters)) {
        visit(b, step, [&](std::span<const std::byte> values) {
            if (!keep) return;
            const Bytes bytes{std::ssize(values)};
            held_.push_back({b, device_.device->allocate(bytes, "parameters to evaluate")});
            // Copies on the queue that has zeroed the new memory, so that the zeros cannot
            // overwrite the copy.
            device::Queue& compute = device_.device->compute();
            compute.copy(held_.back().values.bytes().data(), values.data(), bytes.value);
            compute.finish();
        });
        if (keep) point_to(b, held_.back().values.bytes().data());
    }
}

void ParameterStore::visit(int b, int64_t step, const UseBucket& use) {
    const int buffer = homes_[b].buffer;
    if (buffer < 0) {  // its parameters have no elements
        if (use) use({});
        return;
    }
    if (map_.parameters_offloaded()) bring(b, buffer);
    gather(b, buffer, step);
    collectives_.settle();
    const int64_t bytes = map_.layout().buckets[b].numel * element_bytes();
    if (use) use(arena_.shared(slices_.buffers[buffer]).first(static_cast<size_t>(bytes)));
    release(b, buffer);
}

void ParameterStore::let_go() {
    for (const HeldBucket& held : held_) point_to(held.bucket, tripwire_.data());
    held_.clear();
}

}  // namespace dslaunch::zero
