#include "zero/update/tensor_path.h"

#include <algorithm>

namespace dslaunch::zero {

namespace {

// Returns the number of elements of the largest tensor that this rank updates as a whole.
int64_t whole_tensor_numel_max(const RankParts& parts) {
    const plan::FlatLayout& layout = *parts.place().layout;
    int64_t numel = 0;
    for (int i = 0; i < layout.trained_slices; ++i) {
        const plan::ParameterSlice& slice = layout.slices[i];
        const Run run{{}, 1, parts.options().rules.index_of(slice.parameter), i};
        if (!parts.runs().rule(run).optimizer.needs_whole_tensors()) continue;
        const int b = layout.bucket_of(i);
        const int64_t begin = slice.offset_numel - parts.bucket(b).offset_numel;
        for (const OwnedPiece& piece : parts.place().map->pieces(b))
            if (intersect(piece.range, {begin, slice.numel}).numel > 0)
                numel = std::max(numel, slice.numel);
    }
    return numel;
}

}  // namespace

TensorPath::TensorPath(RankParts& parts, CompressedExchange* exchange)
    : UpdatePath(parts),
      exchange_(exchange),
      optimizer_(parts.device(), parts.queue(), whole_tensor_numel_max(parts)),
      states_(parts.options().optimizer, parts.model(), *parts.place().map) {
    if (parts.options().saved != nullptr) states_.load(*parts.options().saved);
}

void TensorPath::update(const plan::Instruction& chunk, const ChunkView& view, bool writes) {
    for_each_run(chunk.chunk, writes, [&](const ChunkPart& part, const Run& run, const Range&) {
        if (parts_.runs().rule(run).optimizer.needs_whole_tensors())
            update_tensor(chunk, part, run, view);
    });
}

void TensorPath::update_tensor(const plan::Instruction& chunk, const ChunkPart& part,
                               const Run& run, const ChunkView& view) {
    const int b = chunk.bucket;
    const plan::Exchange exchange = parts_.place().plan->exchange;
    const plan::ParameterSlice& slice = parts_.place().layout->slices[run.slice];
    const graph::ModelParameter& parameter = parts_.model().parameters()[slice.parameter];
    const Range tensor{run.range.begin, slice.numel};
    if (tensor.numel == 0) return;
    DSL_CHECK(intersect(tensor, part.range) == tensor, "{} is split among ranks", parameter.name);
    kernels::FlatRange update = parts_.arrays_of(b, part, view, tensor);
    const float* gradients = nullptr;
    if (plan::is_compressed(exchange)) {
        gradients = exchange_->averaged(b).data() + tensor.begin;
    } else {
        float* const mean = optimizer_.gradients();
        parts_.for_gradients(
            b, part, tensor, view,
            [&](const Range& range, std::span<const float* const> terms, float scale) {
                parts_.queue().ordered_sum(terms, scale, mean + range.begin - tensor.begin,
                                           range.numel);
            });
        gradients = mean;
        update.gradient_scale = parts_.now().clip_factor;
    }
    update.gradients = {&gradients, 1};
    const config::OptimizerConfig& optimizer = parts_.runs().rule(run).optimizer;
    TensorStep step{&optimizer, parts_.rate(run), run.step, parts_.now().settings.betas, exchange};
    if (optimizer.kind == parts_.options().optimizer.kind) step.states = states_.of(run.slice);
    ShownUpdate shown{update, tensor, 1.0F, run, /*done=*/false};
    if (optimizer.kind == config::OptimizerKind::kAdafactor) shown.factors = step.states;
    const bool shows = parts_.witness() != nullptr && parts_.writes(b, part);
    if (shows) show(chunk, shown);
    optimizer_.update(update, parameter.tensor, step);
    shown.done = true;
    if (shows) show(chunk, shown);
}

std::vector<std::string> TensorPath::state_names() const {
    return tensor_state_names(parts_.options().optimizer);
}

void TensorPath::add_pieces(int chunk, int first, std::vector<runtime::SavedPiece>& pieces) {
    if (chunk >= 0) states_.add_pieces(parts_.states().chunk(chunk).bucket, first, chunk, pieces);
}

void TensorPath::add_memory(runtime::MemoryAccount& account) const {
    account.moments += states_.bytes();
}

}  // namespace dslaunch::zero
