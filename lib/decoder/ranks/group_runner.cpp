#include "decoder/ranks/group_runner.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "decoder/ranks/patient_thread.h"

namespace dslaunch::decoder {

namespace {

// The tag of hidden rows that are sent between stages; nothing else is sent over these links.
constexpr uint32_t kHiddenTag = 1;
// Rank 0 sends one of these two numbers in place of the length of a batch.
constexpr int64_t kEnd = 0;
constexpr int64_t kNothing = -1;
// The longest time that a rank waits for memory. It is shorter than the time for which the other
// ranks wait for this rank.
constexpr std::chrono::seconds kPatience{10};

}  // namespace

std::vector<std::vector<int>> RankMesh::ranks_of_stages() const {
    std::vector<std::vector<int>> ranks(static_cast<size_t>(stages));
    for (int stage = 0; stage < stages; ++stage)
        for (int i = 0; i < tensor_ranks; ++i)
            ranks[static_cast<size_t>(stages - 1 - stage)].push_back(stage * tensor_ranks + i);
    return ranks;
}

RankMesh choose_mesh(const storage::TransformerConfig& config, const std::vector<int>& node_sizes,
                     int tensor_ranks) {
    const int world = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
    const auto divides = [&](int ranks) {
        return config.key_heads % ranks == 0 &&
               std::ranges::all_of(node_sizes, [&](int size) { return size % ranks == 0; });
    };
    RankMesh mesh;
    if (tensor_ranks > 0) {
        if (world % tensor_ranks != 0 || config.key_heads % tensor_ranks != 0)
            fail(ExitCode::kUsage,
                 "--tensor-ranks {}: it must divide both the job's {} ranks and the model's {} key "
                 "heads",
                 tensor_ranks, world, config.key_heads);
        mesh.tensor_ranks = tensor_ranks;
    } else {
        // Tensor ranks sum numbers in the middle of layers, so they should be on one host. Between
        // stages, which may be on different hosts, rows are sent only once.
        for (int ranks = 1; ranks <= *std::ranges::min_element(node_sizes); ++ranks)
            if (divides(ranks)) mesh.tensor_ranks = ranks;
    }
    mesh.stages = world / mesh.tensor_ranks;
    if (mesh.stages > std::ssize(config.layers))
        fail(ExitCode::kUsage,
             "{} ranks, {} of them for each stage, make {} stages, but the model has only {} "
             "layers: use fewer ranks, or change --tensor-ranks",
             world, mesh.tensor_ranks, mesh.stages, config.layers.size());
    return mesh;
}

GroupRunner::GroupRunner(GroupParts parts) : parts_(std::move(parts)) {
    DSL_CHECK(!parts_.place.is_pipeline() || std::ssize(parts_.links) == parts_.place.stages,
              "a pipeline needs one link for each stage");
}

void GroupRunner::tell(int64_t length) {
    parts_.all.broadcast(std::as_writable_bytes(std::span(&length, 1)));
}

void GroupRunner::keep_waiting() {
    tell(kNothing);
}

void GroupRunner::end() {
    tell(kEnd);
}

void GroupRunner::follow() {
    for (;;) {
        int64_t length = kEnd;
        parts_.all.broadcast(std::as_writable_bytes(std::span(&length, 1)));
        if (length == kEnd) return;
        if (length == kNothing) continue;
        const PatientThread patient(kPatience);
        std::string bytes(static_cast<size_t>(length), '\0');
        parts_.all.broadcast(std::as_writable_bytes(std::span(bytes)));
        const Batch batch = parse_batch(bytes);
        compute(batch);
        if (parts_.place.stage + 1 == parts_.place.stages) static_cast<void>(whole_logits(batch));
    }
}

void GroupRunner::compute(const Batch& batch) {
    const int stage = parts_.place.stage;
    const std::span<float> hidden = parts_.decoder.hidden(batch);
    if (stage == 0) {
        parts_.decoder.embed(batch);
    } else {
        parts_.links[static_cast<size_t>(stage - 1)]->transfer(
            {}, {{stage - 1, kHiddenTag, std::as_writable_bytes(hidden)}});
    }
    parts_.decoder.run_layers(batch);
    if (stage + 1 < parts_.place.stages)
        parts_.links[static_cast<size_t>(stage) + 1]->transfer(
            {{stage + 1, kHiddenTag, std::as_bytes(hidden)}}, {});
}

// Returns the logits of the whole vocabulary. Each rank of the stage puts its share into an array
// of zeros, and the arrays of all these ranks are summed.
std::span<float> GroupRunner::whole_logits(const Batch& batch) {
    const std::span<float> mine = parts_.decoder.logits(batch);
    if (parts_.sum == nullptr || parts_.sum->size() == 1) return mine;
    const Range own = parts_.decoder.weights().vocabulary;
    const int64_t rows = batch.logits_rows();
    logits_.assign(static_cast<size_t>(rows * vocabulary()), 0.0F);
    for (int64_t row = 0; row < rows; ++row)
        std::copy_n(mine.data() + row * own.numel, own.numel,
                    logits_.data() + row * vocabulary() + own.begin);
    parts_.sum->sum(logits_);
    return logits_;
}

std::span<float> GroupRunner::run(const Batch& batch) {
    std::string bytes = batch_bytes(batch);
    const PatientThread patient(kPatience);
    is_computing_ = true;
    tell(std::ssize(bytes));
    parts_.all.broadcast(std::as_writable_bytes(std::span(bytes)));
    compute(batch);
    const std::span<float> logits = whole_logits(batch);
    is_computing_ = false;
    return logits;
}

}  // namespace dslaunch::decoder
