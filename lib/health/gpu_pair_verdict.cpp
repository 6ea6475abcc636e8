// Judges pairs of GPUs (health_verdict.h).
#include <fmt/format.h>

#include <array>
#include <map>

#include "base/median.h"
#include "base/text.h"
#include "health/health_verdict.h"
#include "health/link_figures.h"

namespace dslaunch::health {

namespace {

constexpr double kSlowShare = 0.5;
constexpr size_t kOthersMin = 3;

struct SlowPair {
    GpuPairSample sample;
    double median = 0;
};

class PairVerdict {
  public:
    PairVerdict(const std::vector<GpuPairSample>& pairs, const GpuPlaces& places)
        : places_(places) {
        std::array<std::vector<double>, 2> rates;
        for (const GpuPairSample& pair : pairs)
            rates[is_inside(pair)].push_back(static_cast<double>(pair.bytes_per_second));
        for (const GpuPairSample& pair : pairs) {
            const std::vector<double>& of_kind = rates[is_inside(pair)];
            pairs_of_[pair.first] += 1;
            pairs_of_[pair.second] += 1;
            if (of_kind.size() < kOthersMin) continue;
            const double median = median_of(of_kind, Middle::kUpper);
            if (static_cast<double>(pair.bytes_per_second) < kSlowShare * median)
                slow_.push_back({pair, median});
        }
    }

    [[nodiscard]] std::vector<HealthFinding> findings() const {
        std::map<int64_t, size_t> slow_pairs_of;
        for (const SlowPair& pair : slow_) {
            slow_pairs_of[pair.sample.first] += 1;
            slow_pairs_of[pair.sample.second] += 1;
        }
        const auto is_bad = [&](int64_t rank) {
            const auto slow = slow_pairs_of.find(rank);
            return slow != slow_pairs_of.end() && slow->second >= kOthersMin &&
                   slow->second == pairs_of_.at(rank);
        };
        std::vector<HealthFinding> found;
        for (const auto& [rank, count] : slow_pairs_of)
            if (is_bad(rank)) found.push_back(of_gpu(rank, count));
        for (const SlowPair& pair : slow_)
            if (!is_bad(pair.sample.first) && !is_bad(pair.sample.second))
                found.push_back(of_pair(pair));
        return found;
    }

  private:
    [[nodiscard]] int64_t node(int64_t rank) const { return places_.node_of_rank[rank]; }
    [[nodiscard]] bool is_inside(const GpuPairSample& pair) const {
        return node(pair.first) == node(pair.second);
    }
    [[nodiscard]] std::string gpu_text(int64_t rank) const {
        return fmt::format("the GPU of rank {} on {}", rank,
                           printable(places_.host_names[node(rank)]));
    }
    [[nodiscard]] HealthFinding of_gpu(int64_t rank, size_t pairs) const {
        HealthFinding finding;
        finding.subject = HealthFinding::Subject::kRank;
        finding.rank = rank;
        finding.nodes = {node(rank)};
        finding.text = fmt::format(
            "{}: its transfers with each of the {} other GPUs are slow, at less than half of the "
            "rate of other pairs",
            gpu_text(rank), pairs);
        return finding;
    }
    [[nodiscard]] HealthFinding of_pair(const SlowPair& pair) const {
        HealthFinding finding;
        finding.subject = HealthFinding::Subject::kLink;
        finding.nodes = {node(pair.sample.first), node(pair.sample.second)};
        finding.text = fmt::format("between {} and {}: {}, but other pairs of GPUs {} reach {}",
                                   gpu_text(pair.sample.first), gpu_text(pair.sample.second),
                                   rate_text(static_cast<double>(pair.sample.bytes_per_second)),
                                   is_inside(pair.sample) ? "inside hosts" : "between hosts",
                                   rate_text(pair.median));
        return finding;
    }

    const GpuPlaces& places_;
    std::map<int64_t, size_t> pairs_of_;  // number of pairs of each rank
    std::vector<SlowPair> slow_;
};

}  // namespace

std::vector<HealthFinding> judge_gpu_pairs(const std::vector<GpuPairSample>& pairs,
                                           const GpuPlaces& places) {
    return PairVerdict(pairs, places).findings();
}

}  // namespace dslaunch::health
