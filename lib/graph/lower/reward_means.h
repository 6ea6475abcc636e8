// The rewards of a preference loss (loss.cpp), as means over pairs. Data path: the model's last
// output -> [here] -> metrics.jsonl. Pure.
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch::graph {

// Means of the rewards of pairs.
struct RewardMeans {
    double chosen = 0;
    double rejected = 0;
    double accuracy = 0;  // the fraction of pairs whose chosen answer has the larger reward

    // Returns the mean reward of chosen answers minus the mean reward of rejected answers.
    [[nodiscard]] double margin() const { return chosen - rejected; }
    // Adds FACTOR times OTHER.
    void add(const RewardMeans& other, double factor = 1);
};

// Returns the means over REWARDS, [pairs, 2]. Waits until its device has computed them.
[[nodiscard]] RewardMeans reward_means(const at::Tensor& rewards);

}  // namespace dslaunch::graph
