// The part of the ZeRO state that stores values which the model's forward gives its parameters.
#include "zero/zero_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <set>

#include "base/check.h"
#include "graph/lower/precision.h"
#include "graph/memory/memory_order.h"
#include "zero/parameters/flat_view.h"
#include "zero/parameters/host_values.h"

namespace dslaunch::zero {

// Copies of PARAMETERS as the last step left them, in fp32 where there are master copies.
std::vector<at::Tensor> ZeroState::whole_values(std::span<const int> parameters) {
    std::map<int, at::Tensor> masters;
    if (half() && !without_masters()) {
        std::set<int> buckets;
        for (const int parameter : parameters)
            if (updates_of(parameter))
                buckets.insert(place_.layout->bucket_of(place_.layout->slice_of(parameter)));
        gradients_->collect([&](int b, std::span<float> whole) { copy_weights(b, whole.data()); },
                            [&](int b, std::span<const float> values) {
                                hand_over(b, values, [&](int parameter, std::span<const float> of) {
                                    const at::Tensor view = view_like(
                                        model_.parameters()[parameter].tensor,
                                        const_cast<float*>(of.data()), at::kFloat, at::kCPU);
                                    masters[parameter] = view.clone().to(place_.device.name);
                                });
                            },
                            &buckets);
    }
    parameters_->hold(parameters, step_, /*keep=*/true);
    std::vector<at::Tensor> values;
    for (const int parameter : parameters) {
        const auto master = masters.find(parameter);
        values.push_back(master != masters.end()
                             ? master->second
                             : model_.parameters()[parameter].tensor.detach().clone());
    }
    parameters_->let_go();
    return values;
}

// Writes this rank's part of VALUES, the values of RANGE of a bucket.
void ZeroState::store_elements(int b, const Range& range, const float* values) {
    const at::ScalarType type = graph::scalar_type_of(options_.dtype);
    const auto write = [&](const Range& part, void* into, at::ScalarType as) {
        const int64_t bytes = part.numel * static_cast<int64_t>(c10::elementSize(as));
        write_from_host(device(), into, bytes, [&](std::byte* host) {
            float* const from = const_cast<float*>(values) + (part.begin - range.begin);
            at::from_blob(host, {part.numel}, as)
                .copy_(at::from_blob(from, {part.numel}, at::kFloat));
        });
    };
    std::vector<Range> own = {{range.begin, 0}};
    if (place_.map->is_gathered(b)) {
        own = place_.map->own_ranges(b);
    } else {
        // Local ranks share the writing of their host's copy.
        const Range part =
            part_range(range.numel, {group_.local_rank(), group_.local_world_size()});
        own = {{range.begin + part.begin, part.numel}};
    }
    for (const Range& kept : own)
        if (const Range both = intersect(kept, range); both.numel > 0)
            write(both, parameters_->kept(b, both.begin), type);
    if (!half() || without_masters() || b >= place_.layout->trained_buckets) return;
    for (const int c : states_->chunks_of(b)) {
        const std::optional<ChunkView> view = states_->view_at_rest(c);
        DSL_CHECK(view && view->master != nullptr, "the master copy of bucket {} is not here", b);
        for (const ChunkPart& part : states_->parts(c))
            if (const Range both = intersect(part.range, range); both.numel > 0)
                write(both, view->master + part.offset_numel + both.begin - part.range.begin,
                      at::kFloat);
    }
}

void ZeroState::store_values(int parameter, const at::Tensor& values) {
    at::Tensor tensor = model_.parameters()[parameter].tensor;
    const int slice = place_.layout->slice_of(parameter);
    if (slice < 0) {
        tensor.detach().copy_(values);  // no segment reads it, and each rank has its own
        return;
    }
    const at::Tensor laid = at::empty_strided(
        tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
    laid.copy_(values);
    const at::Tensor flat = graph::in_memory_order(laid).contiguous();
    const int b = place_.layout->bucket_of(slice);
    const plan::ParameterSlice& of = place_.layout->slices[slice];
    store_elements(b, {of.offset_numel - bucket(b).offset_numel, of.numel},
                   flat.const_data_ptr<float>());
}

void ZeroState::rewrite(std::span<const int> read, std::span<const int> written,
                        const NewValues& use) {
    const at::NoGradGuard no_grad;
    settle();
    std::vector<at::Tensor> values = use(whole_values(read));
    DSL_CHECK(values.size() == written.size(), "{} values for {} parameters", values.size(),
              written.size());
    for (at::Tensor& value : values) {
        value = value.to(at::kCPU, at::kFloat).contiguous();
        if (collectives_.topology().node_count() > 1 && device().is_host() && value.numel() > 0)
            collectives_.broadcast({static_cast<std::byte*>(value.mutable_data_ptr()),
                                    static_cast<size_t>(value.nbytes())});
    }
    group_.barrier();  // every local rank has its copies
    for (size_t i = 0; i < values.size(); ++i) store_values(written[i], values[i]);
    device().compute().finish();
    collectives_.barrier();
}

}  // namespace dslaunch::zero
