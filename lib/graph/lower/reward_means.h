// The rewards of a loss of preferences (loss.cpp), as means over pairs. Data path: the
// model's last output -> [here] -> metrics.jsonl. Pure.
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch::graph {

struct RewardMeans {
    double chosen = 0;
    double rejected = 0;
    double accuracy = 0;  // the part of the pairs whose chosen answer has the larger reward

    [[nodiscard]] double margin() const { return chosen - rejected; }
    // Adds FACTOR times OTHER.
    void add(const RewardMeans& other, double factor = 1);
};

// Returns the means over REWARDS, [pairs, 2]. Waits for its device.
[[nodiscard]] RewardMeans reward_means(const at::Tensor& rewards);

}  // namespace dslaunch::graph
