#include "graph/lower/reward_means.h"

namespace dslaunch::graph {

void RewardMeans::add(const RewardMeans& other, double factor) {
    chosen += factor * other.chosen;
    rejected += factor * other.rejected;
    accuracy += factor * other.accuracy;
}

RewardMeans reward_means(const at::Tensor& rewards) {
    const at::Tensor all = rewards.to(at::kCPU, at::kDouble).contiguous();
    const double* const values = all.const_data_ptr<double>();
    const int64_t pairs = all.size(0);
    RewardMeans means;
    for (int64_t i = 0; i < pairs; ++i) {
        const double chosen = values[2 * i], rejected = values[2 * i + 1];
        means.add({chosen, rejected, chosen > rejected ? 1.0 : 0.0},
                  1.0 / static_cast<double>(pairs));
    }
    return means;
}

}  // namespace dslaunch::graph
