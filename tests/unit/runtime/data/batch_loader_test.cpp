#include "runtime/data/batch_loader.h"

#include <algorithm>
#include <vector>

#include "data_files.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kContext = 3;

// Returns 23 samples: a prime, so that no batch size divides it. Sample i is tokens 3i, 3i+1, 3i+2.
DataSource counting_samples(const DataFolder& folder) {
    return open_data(token_request(folder.counting_tokens("t.bin", 23 * 3 + 1), kContext)).train;
}

BatchLoader::Options options_for(int64_t ranks, int64_t rank, int64_t accumulation, bool shuffle) {
    BatchLoader::Options options;
    options.batch = {.train_rows = 2 * ranks * accumulation,
                     .micro_rows = 2,
                     .accumulation_steps = accumulation,
                     .data_parallel_size = ranks};
    options.rank = rank;
    options.seed = 5;
    options.shuffle = shuffle;
    return options;
}

// Returns the sample in each row of a batch, found by its first token. Checks the rest of the row.
Ints samples_in(const std::vector<c10::IValue>& batch) {
    const Ints tokens = values_of<int64_t>(batch[0]);
    const Ints targets = values_of<int64_t>(batch[1]);
    Ints samples;
    for (size_t i = 0; i < tokens.size(); ++i) {
        REQUIRE(targets[i] == tokens[i] + 1);
        if (i % kContext == 0) samples.push_back(tokens[i] / kContext);
        REQUIRE(tokens[i] == samples.back() * kContext + static_cast<int64_t>(i % kContext));
    }
    return samples;
}

// Returns all samples of the first STEPS steps in the order of training: step, micro step, rank,
// row.
Ints samples_of_run(const DataSource& train, int64_t ranks, int64_t accumulation, bool shuffle,
                    int64_t steps) {
    std::vector<std::unique_ptr<BatchLoader>> loaders;
    for (int64_t rank = 0; rank < ranks; ++rank)
        loaders.push_back(
            std::make_unique<BatchLoader>(train, options_for(ranks, rank, accumulation, shuffle)));
    Ints samples;
    for (int64_t step = 0; step < steps; ++step)
        for (int64_t micro = 0; micro < accumulation; ++micro)
            for (const auto& loader : loaders)
                for (const int64_t sample : samples_in(loader->take(step, micro)))
                    samples.push_back(sample);
    return samples;
}

}  // namespace

TEST_CASE("without shuffling, ranks and micro steps take the samples in turn and wrap around") {
    const DataFolder folder;
    const DataSource train = counting_samples(folder);
    for (const int64_t ranks : {1, 2, 3, 5})
        for (const int64_t accumulation : {1, 2, 3}) {
            const Ints samples = samples_of_run(train, ranks, accumulation, false, 7);
            REQUIRE(samples.size() == static_cast<size_t>(7 * accumulation * ranks * 2));
            for (size_t i = 0; i < samples.size(); ++i)
                REQUIRE(samples[i] == static_cast<int64_t>(i % 23));
        }
}

TEST_CASE("one batch in the middle of a run is the one computed by hand") {
    const DataFolder folder;
    // Step 4, micro step 1 of 3, rank 2 of 5, two rows: ((4*3+1)*5+2)*2 = 134, 134 mod 23 = 19.
    BatchLoader loader(counting_samples(folder), options_for(5, 2, 3, false));
    const auto batch = loader.take(4, 1);
    REQUIRE(shape_of(batch[0]) == Ints{2, 3});
    REQUIRE(values_of<int64_t>(batch[0]) == Ints{57, 58, 59, 60, 61, 62});
    REQUIRE(values_of<int64_t>(batch[1]) == Ints{58, 59, 60, 61, 62, 63});
}

TEST_CASE("the shuffled order is one sequence, however many ranks and micro steps share it") {
    const DataFolder folder;
    const DataSource train = counting_samples(folder);
    const Ints whole = samples_of_run(train, 1, 1, true, 90);
    for (size_t epoch = 0; epoch < 3; ++epoch) {
        Ints seen(whole.begin() + static_cast<long>(epoch) * 23,
                  whole.begin() + static_cast<long>(epoch + 1) * 23);
        REQUIRE(!std::is_sorted(seen.begin(), seen.end()));
        std::sort(seen.begin(), seen.end());
        for (int64_t i = 0; i < 23; ++i) REQUIRE(seen[i] == i);
    }
    for (const int64_t ranks : {1, 2, 3, 5})
        for (const int64_t accumulation : {1, 2, 3}) {
            const Ints samples = samples_of_run(train, ranks, accumulation, true, 6);
            REQUIRE(samples ==
                    Ints(whole.begin(), whole.begin() + static_cast<long>(samples.size())));
        }
}

TEST_CASE("a resumed loader gives from its step on what an unbroken one gives") {
    const DataFolder folder;
    const DataSource train = counting_samples(folder);
    BatchLoader unbroken(train, options_for(3, 1, 2, true));
    BatchLoader::Options resumed_options = options_for(3, 1, 2, true);
    resumed_options.first_step = 9;
    resumed_options.first_row = 9 * resumed_options.batch.train_rows;
    BatchLoader resumed(train, resumed_options);
    for (int64_t step = 0; step < 12; ++step)
        for (int64_t micro = 0; micro < 2; ++micro) {
            const Ints samples = samples_in(unbroken.take(step, micro));
            REQUIRE(samples == unbroken.samples_of(step, micro));
            if (step >= 9) REQUIRE(samples_in(resumed.take(step, micro)) == samples);
        }
}

TEST_CASE("a loader never takes a held-out sample, and two batches never share memory") {
    const DataFolder folder;
    DataRequest request = token_request(folder.counting_tokens("t.bin", 23 * 3 + 1), kContext);
    request.data.eval_fraction = 0.3;  // 6 of 23
    const DataSets sets = open_data(request);
    BatchLoader loader(sets.train, options_for(1, 0, 1, true));
    std::vector<bool> seen(23);
    const auto first = loader.take(0, 0);
    const Ints kept = samples_in(first);
    for (int64_t step = 1; step < 17; ++step)
        for (const int64_t sample : samples_in(loader.take(step, 0))) seen[sample] = true;
    for (size_t i = 0; i < 23; ++i) REQUIRE(seen[i] == (i < 17));
    REQUIRE(samples_in(first) == kept);
}

TEST_CASE("fewer samples than one step takes are repeated within the step") {
    const DataFolder folder;
    const DataSource train =
        open_data(token_request(folder.counting_tokens("t.bin", 3 * 3 + 1), kContext)).train;
    REQUIRE(samples_of_run(train, 2, 2, false, 1) == Ints{0, 1, 2, 0, 1, 2, 0, 1});
}
