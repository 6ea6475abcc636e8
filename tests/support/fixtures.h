// The archives in tests/fixtures and the results that stock PyTorch has for them: model, loss,
// first batch, reference numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph/segment/segmented_model.h"
#include "runtime/data/data_source.h"
#include "support/fixture_files.h"

namespace dslaunch::test {

using namespace config;
using namespace graph;
using namespace runtime;

inline LossConfig fixture_loss(const nlohmann::json& facts) {
    LossConfig loss;
    if (facts.at("loss").is_null()) return loss;
    loss.kind = facts.at("loss") == "mse" ? LossKind::kMse : LossKind::kCrossEntropy;
    loss.target = facts.at("data").at("columns").back().get<std::string>();
    return loss;
}

// Returns all numbers of segments if there are few PLACES to cut. Otherwise returns Fibonacci
// numbers and the largest number.
inline std::vector<int64_t> segment_counts(int64_t places) {
    std::vector<int64_t> counts;
    if (places <= 60) {
        for (int64_t count = 1; count <= places + 1; ++count) counts.push_back(count);
        return counts;
    }
    for (int64_t a = 1, b = 2; a <= places; b += std::exchange(a, b)) counts.push_back(a);
    counts.push_back(places + 1);
    return counts;
}

struct Fixture {
    nlohmann::json facts;
    Model model;
    LowerOptions options;

    [[nodiscard]] static Fixture load(const std::string& name, bool training = true) {
        Fixture fixture{fixture_facts(name), Model::load(fixture_archive(name)), {}};
        fixture.options.loss = fixture_loss(fixture.facts);
        fixture.options.trains = training;
        return fixture;
    }

    [[nodiscard]] SegmentedModel cut(int64_t segments) {
        return SegmentedModel::make(model, options, segments);
    }

    // Returns the samples FIRST, FIRST + 1, … of the data file as arguments of forward, followed by
    // the target if the fixture names a loss.
    [[nodiscard]] std::vector<c10::IValue> batch(const SegmentedModel& segmented,
                                                 int64_t first = 0) const {
        DataRequest request;
        request.data.train_path = fixture_path(facts.at("data").at("file").get<std::string>());
        request.data.context = facts.at("data").value("context", int64_t{0});
        request.data.shuffle = false;
        request.loss = options.loss;
        request.arguments = segmented.arguments();
        request.argument_types = segmented.argument_types();
        std::vector<int64_t> samples(facts.at("batch").get<size_t>());
        std::iota(samples.begin(), samples.end(), first);
        return open_data(request).train.batch(samples);
    }
};

}  // namespace dslaunch::test
