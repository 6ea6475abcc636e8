// Jobs of training_world.h that train the fixture models. These are real archives with frozen, tied
// and unused parameters, BatchNorm, dropout and written attributes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "support/fixtures.h"
#include "training_world.h"

namespace dslaunch::testing {

using namespace graph;

// Returns the model of fixture NAME and its batches. Micro batch m takes samples m, m + 1, … in
// order. The model computes on DEVICE.
inline TrainedModel fixture_model(const std::string& name, c10::Device device = c10::kCPU) {
    // Shared by the copies of the function that makes batches.
    const auto fixture = std::make_shared<test::Fixture>(test::Fixture::load(name));
    move_to_device(fixture->model, device);
    fixture->options.device = device;
    return {std::move(fixture->model), fixture->options,
            [fixture](const SegmentedModel& segmented, int64_t micro_batch) {
                return fixture->batch(segmented, micro_batch);
            }};
}

// Returns a job of three steps of AdamW. Its buckets and blocks are so small that all but the
// smallest parameters are cut into shards.
inline TrainingCase fixture_case(const std::string& name, std::vector<int> node_sizes) {
    TrainingCase job{name, std::move(node_sizes)};
    job.optimizer.lr = 0.01;
    job.optimizer.weight_decay = 0.1;
    job.steps = 3;
    job.bucket_numel_max = 1 << 13;
    job.bucket_numel_min = 1 << 10;
    job.block_numel = 256;
    job.make_model = [name] { return fixture_model(name); };
    return job;
}

}  // namespace dslaunch::testing
