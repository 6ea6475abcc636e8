// Differences that the test has made are found, with place and size, and no others.
#include "storage/export/source_diff.h"

#include <limits>

#include "base/error.h"
#include "storage/export/source_of_path.h"
#include "storage/export/tensor_source.h"
#include "storage/export/weight_export.h"
#include "support/catch.h"
#include "support/stored_model.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

using Kind = TensorDiff::Kind;

struct Pair {
    TemporaryFolder folder;
    std::unique_ptr<FileTree> tree = make_disk_tree();
    StoredModel a = StoredModel::small(), b = StoredModel::small();

    SourceDiff diff(int world_a, int world_b, const DiffOptions& options = {}) {
        const auto in_a = open_tensor_source(*tree, a.save(*tree, folder.path() + "/a", world_a));
        const auto in_b = open_tensor_source(*tree, b.save(*tree, folder.path() + "/b", world_b));
        return diff_sources(*in_a, *in_b, options);
    }
};

}  // namespace

TEST_CASE("checkpoints of different world sizes are equal, and equal pieces are not read") {
    for (const auto& [a, b] : {std::pair{1, 3}, std::pair{5, 2}, std::pair{7, 17}}) {
        Pair pair;
        pair.b.checkpoint.zero_stage = 2;
        const SourceDiff diff = pair.diff(a, b);
        CHECK(diff.is_equal());
        CHECK(diff.compared_count == 7 + 2 * 5);
        REQUIRE(diff.about.size() == 2);
        CHECK(diff.about[0].name == "world_size");
        CHECK(diff.about[1].b == "2");
    }
    Pair pair;
    const SourceDiff diff = pair.diff(3, 3);
    CHECK(diff.is_equal());
    CHECK(diff.numel_read == 0);
    // Weights: 24 + 12 + 7 + 10 + 3 + 1. The states are twice the trained weights.
    CHECK(diff.numel_by_hash == 57 + 2 * 44);
}

TEST_CASE("one changed element is found with its index, in weights and in states, at any sizes") {
    for (const auto& [world_a, world_b] : {std::pair{1, 1}, std::pair{3, 3}, std::pair{5, 2}}) {
        for (const int state : {kWeights, 0, 1}) {
            Pair pair;
            pair.b.value = [state](int tensor, int of, int64_t element) {
                const float value = stored_value(tensor, of, element);
                return tensor == 1 && of == state && element == 9 ? value + 0.5F : value;
            };
            const SourceDiff diff = pair.diff(world_a, world_b);
            REQUIRE(diff.tensors.size() == 1);
            const TensorDiff& found = diff.tensors[0];
            CHECK(found.name == "h.0.weight");
            CHECK(found.state == (state == kWeights ? "" : state == 0 ? "exp_avg" : "exp_avg_sq"));
            CHECK(found.kind == Kind::kValues);
            CHECK(found.elements_count == 1);
            CHECK(found.max_abs == 0.5);
            // Strides 1, 4: place 9 is row 1 of column 2.
            CHECK(found.first_index == std::vector<int64_t>{1, 2});
            CHECK(pair.diff(world_a, world_b, {.tolerance = 0.5}).is_equal());
            CHECK(pair.diff(world_a, world_b, {.glob = "*.bias"}).is_equal());
        }
    }
}

TEST_CASE("a NaN differs from a number and not from a NaN") {
    Pair pair;
    const auto with_nan = [](int tensor, int state, int64_t element) {
        return tensor == 2 && state == kWeights && element == 3
                   ? std::numeric_limits<float>::quiet_NaN()
                   : stored_value(tensor, state, element);
    };
    pair.b.value = with_nan;
    const SourceDiff diff = pair.diff(2, 3, {.tolerance = 1e9});
    REQUIRE(diff.tensors.size() == 1);
    CHECK(diff.tensors[0].max_abs == std::numeric_limits<double>::infinity());
    pair.a.value = with_nan;
    CHECK(pair.diff(2, 3).is_equal());
}

TEST_CASE("an order of memory is no difference") {
    Pair pair;
    pair.b.checkpoint.tensors[1].strides.clear();
    pair.b.value = [](int tensor, int state, int64_t element) {
        // [4, 3] of strides 1, 4 in the order of rows.
        const int64_t place = tensor == 1 ? element / 3 + element % 3 * 4 : element;
        return stored_value(tensor, state, place);
    };
    CHECK(pair.diff(2, 3).is_equal());
    pair.b.value = stored_value;
    const SourceDiff diff = pair.diff(2, 3);
    REQUIRE(diff.tensors.size() == 3);  // weights and both states
    CHECK(diff.tensors[0].first_index == std::vector<int64_t>{0, 1});
}

TEST_CASE("tensors of one side, shapes, dtypes, states and training state are told") {
    Pair pair;
    pair.b.checkpoint.tensors[2].name = "h.1.bias";
    pair.b.checkpoint.tensors[0].shape = {4, 6};
    pair.b.checkpoint.tensors[4].dtype = DType::kF32;
    pair.b.checkpoint.tensors[5].updates = 9;
    pair.b.checkpoint.states = {"exp_avg"};
    pair.b.checkpoint.training.samples_seen = 1;
    const SourceDiff diff = pair.diff(2, 2);
    const auto found = [&](const std::string& name, Kind kind) {
        return std::ranges::any_of(diff.tensors, [&](const TensorDiff& one) {
            return one.name == name && one.kind == kind;
        });
    };
    CHECK(found("h.0.bias", Kind::kOnlyInA));
    CHECK(found("h.1.bias", Kind::kOnlyInB));
    CHECK(found("wte.weight", Kind::kShape));
    CHECK(found("steps", Kind::kDType));
    CHECK(found("scale", Kind::kUpdates));
    CHECK(found("scale", Kind::kOnlyInA));  // its exp_avg_sq is only in A
    REQUIRE(diff.training.size() == 1);
    CHECK(diff.training[0].name == "samples_seen");
    CHECK_FALSE(diff.is_equal());
    CHECK_THROWS_AS(pair.diff(2, 2, {.glob = "none*"}), Error);
}

TEST_CASE("a checkpoint is compared with its export: weights alone, tied names both ways") {
    Pair pair;
    const auto source =
        open_tensor_source(*pair.tree, pair.a.save(*pair.tree, pair.folder.path() + "/a", 3));
    for (const bool all_names : {true, false}) {
        const std::string out = pair.folder.path() + (all_names ? "/all" : "/one");
        ExportOptions options;
        options.out = out;
        options.writes_all_names = all_names;
        (void)export_weights(*source, options);
        const auto exported = open_tensor_source(*pair.tree, out);
        for (const bool swapped : {false, true}) {
            const SourceDiff diff = swapped ? diff_sources(*exported, *source, {})
                                            : diff_sources(*source, *exported, {});
            CHECK(diff.is_equal());
            CHECK(diff.is_weights_alone);
            CHECK(diff.compared_count == (all_names ? 8 : 7));
        }
    }
}

TEST_CASE("statistics are those of the finite values") {
    Pair pair;
    pair.a.value = [](int tensor, int, int64_t element) {
        if (tensor != 2) return 0.0F;
        const std::vector<float> values = {3,
                                           -4,
                                           0,
                                           12,
                                           std::numeric_limits<float>::quiet_NaN(),
                                           std::numeric_limits<float>::infinity(),
                                           1};
        return values[element];
    };
    const auto source =
        open_tensor_source(*pair.tree, pair.a.save(*pair.tree, pair.folder.path() + "/a", 2));
    const TensorStats stats = stats_of(*source, 2, kWeights);
    CHECK(stats.norm == Approx(std::sqrt(9.0 + 16 + 144 + 1)).epsilon(1e-15));
    CHECK(stats.min == -4);
    CHECK(stats.max == 12);
    CHECK(stats.mean == Approx(12.0 / 5).epsilon(1e-15));
    CHECK(stats.nan_count == 1);
    CHECK(stats.infinite_count == 1);
    CHECK(stats_of(*source, 6, kWeights).norm == 0);  // the tensor has no elements
}

TEST_CASE("a path means the newest good checkpoint below it, or says what is there") {
    Pair pair;
    const std::string root = pair.folder.path() + "/run/checkpoints";
    StoredModel second = StoredModel::small(5), third = StoredModel::small(7);
    third.value = [](int, int, int64_t) { return std::numeric_limits<float>::infinity(); };
    (void)pair.a.save(*pair.tree, root, 2);
    const std::string newest_good = second.save(*pair.tree, root, 3);
    const std::string newest = third.save(*pair.tree, root, 1);
    CHECK(choose_checkpoint(*pair.tree, pair.folder.path() + "/run") == newest_good);
    CHECK(choose_checkpoint(*pair.tree, root) == newest_good);
    CHECK(choose_checkpoint(*pair.tree, newest) == newest);
    for (const std::string& bad : {pair.folder.path() + "/none", pair.folder.path()}) {
        try {
            (void)open_tensor_source(*pair.tree, bad);
            FAIL("opened " << bad);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kCheckpoint);
            CHECK_THAT(error.what(), Catch::Contains(bad));
        }
    }
}
