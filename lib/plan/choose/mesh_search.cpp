#include "plan/choose/mesh_search.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace dslaunch::plan {
namespace {

class Searcher {
  public:
    Searcher(const MeshRequest& request, const MeshSearch& search)
        : request_(request), search_(search) {
        request_.rank_memory_max.reset();
        ranks_ = std::accumulate(request.node_sizes.begin(), request.node_sizes.end(), 0);
        const int most = *std::max_element(request.node_sizes.begin(), request.node_sizes.end());
        if (search.host_memory_max)
            share_ = Bytes{search.host_memory_max->value / most} - request.program;
    }

    MeshFindings run() {
        for (const int tensor : search_.tensor_sizes)
            for (const int sequence : search_.sequence_sizes)
                for (const int pipeline : pipeline_sizes()) {
                    const int64_t block = int64_t{tensor} * sequence * pipeline;
                    if (ranks_ % block != 0) continue;
                    MeshChoice choice;
                    choice.sizes = {tensor, sequence, static_cast<int>(ranks_ / block), 0,
                                    pipeline};
                    if (search_.micro_batches % choice.sizes.data != 0) continue;
                    choice.micro_batches =
                        static_cast<int>(search_.micro_batches / choice.sizes.data);
                    try_schedules(choice);
                }
        std::ranges::stable_sort(findings_.best, is_better);
        if (findings_.best.size() > search_.count_max) findings_.best.resize(search_.count_max);
        if (findings_.fitting > 0) findings_.smallest.reset();
        return std::move(findings_);
    }

  private:
    static bool is_better(const MeshFinding& a, const MeshFinding& b) {
        return std::tuple(a.cost.step_s, a.cost.host) < std::tuple(b.cost.step_s, b.cost.host);
    }

    [[nodiscard]] std::vector<int> pipeline_sizes() const {
        if (!search_.pipeline_sizes.empty()) return search_.pipeline_sizes;
        const auto most = std::min<int64_t>(ranks_, std::ssize(request_.model.segments));
        std::vector<int> sizes(static_cast<size_t>(most));
        std::iota(sizes.begin(), sizes.end(), 1);
        return sizes;
    }

    void try_schedules(MeshChoice choice) {
        if (choice.sizes.pipeline == 1) return try_stages(choice);
        for (const ScheduleKind kind : search_.schedules) {
            choice.schedule = kind;
            choice.chunks = kind == ScheduleKind::kInterleaved   ? search_.chunks
                            : kind == ScheduleKind::kZeroBubbleV ? 2
                                                                 : 1;
            try_stages(choice);
        }
    }

    // Tries all ZeRO stages for one mesh and schedule. Keeps the best stage, or all stages if the
    // search asks for each stage.
    void try_stages(MeshChoice choice) {
        std::optional<MeshFinding> best;
        for (const int stage : search_.zero_stages) {
            if (choice.sizes.data == 1 && stage != search_.zero_stages.front()) continue;
            choice.zero_stage = stage;
            std::optional<MeshFinding> found = try_memory(choice);
            if (!found) continue;
            ++findings_.fitting;
            if (search_.each_zero_stage) {
                findings_.best.push_back(std::move(*found));
            } else if (!best || is_better(*found, *best)) {
                best = std::move(found);
            }
        }
        if (best) findings_.best.push_back(std::move(*best));
    }

    // Tries recomputation only if memory is too small without it, since it costs time.
    std::optional<MeshFinding> try_memory(MeshChoice choice) {
        for (const bool recompute : {false, true}) {
            choice.recompute = recompute;
            ++findings_.looked_at;
            std::optional<MeshFinding> best = try_choice(choice, std::nullopt);
            if (!best) return best;  // recomputation does not make the mesh possible
            if (share_ && choice.sizes.pipeline > 1) {
                std::optional<MeshFinding> even = try_choice(choice, share_);
                if (even && (!fits(*best) || is_better(*even, *best))) best = std::move(even);
            }
            if (fits(*best)) return best;
        }
        return std::nullopt;
    }

    std::optional<MeshFinding> try_choice(const MeshChoice& choice,
                                          std::optional<Bytes> rank_memory_max) {
        request_.rank_memory_max = rank_memory_max;
        try {
            MeshFinding found{choice, mesh_cost(request_, choice)};
            if (!findings_.smallest || found.cost.host < findings_.smallest->cost.host)
                findings_.smallest = found;
            return found;
        } catch (const Error& error) {
            if (error.code() != ExitCode::kConfig) throw;
            return std::nullopt;
        }
    }

    [[nodiscard]] bool fits(const MeshFinding& finding) const {
        return !search_.host_memory_max || finding.cost.host <= *search_.host_memory_max;
    }

    MeshRequest request_;
    const MeshSearch& search_;
    int64_t ranks_ = 0;
    std::optional<Bytes> share_;
    MeshFindings findings_;
};

}  // namespace

MeshFindings search_meshes(const MeshRequest& request, const MeshSearch& search) {
    return Searcher(request, search).run();
}

}  // namespace dslaunch::plan
