// The best checkpoint: its choice, and its protection from retention. After a power cut at any
// moment of its save, the best of the promised checkpoints is left.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "power_cut.h"
#include "save_tools.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

const std::string kRoot = "/out/checkpoints";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EvalRecord record(int64_t step, double value, EvalMetric metric = EvalMetric::kLoss) {
    return {.metric = metric, .step = step, .value = value, .best_step = step, .best = value};
}

// Returns a good checkpoint. VALUE was measured after its step.
StoredCheckpoint stored(int64_t step, double value, EvalMetric metric = EvalMetric::kLoss) {
    StoredCheckpoint each;
    each.folder = "step-" + std::to_string(step);
    each.step = step;
    each.is_complete = each.is_finite = true;
    each.evaluated = record(step, value, metric);
    each.judged_by = eval_metric_name(metric);
    return each;
}

StoredCheckpoint unmeasured(int64_t step) {
    StoredCheckpoint each = stored(step, 0);
    each.evaluated.reset();
    return each;
}

// Returns the step of the best checkpoint; -1: there is none.
int64_t best_of(std::vector<StoredCheckpoint> all) {
    mark_best(all);
    int64_t best = -1;
    for (const StoredCheckpoint& each : all) {
        if (!each.is_best) continue;
        CHECK(best == -1);
        best = each.step;
    }
    return best;
}

std::vector<int64_t> steps_in(const CheckpointStore& store) {
    std::vector<int64_t> steps;
    for (const StoredCheckpoint& each : store.list()) steps.push_back(each.step);
    std::ranges::sort(steps);
    return steps;
}

std::string text_at(const FileTree& tree, const std::string& path) {
    const auto view = tree.open(path);
    return {reinterpret_cast<const char*>(view->bytes().data()), view->bytes().size()};
}

}  // namespace

TEST_CASE("the best checkpoint is the one with the best evaluation after just its step") {
    CHECK(best_of({}) == -1);
    CHECK(best_of({unmeasured(10)}) == -1);
    CHECK(best_of({stored(10, 3), stored(20, 2), stored(30, 2.5)}) == 20);
    CHECK(best_of({stored(30, 2), stored(10, 2), stored(20, 2)}) == 10);
    CHECK(best_of({stored(10, kNan)}) == -1);
    CHECK(best_of({stored(10, kNan), stored(20, 5), stored(30, kNan)}) == 20);
    CHECK(best_of({stored(10, 3), unmeasured(20)}) == 10);
    const EvalMetric right = EvalMetric::kAccuracies;
    CHECK(best_of({stored(10, 0.3, right), stored(20, 0.9, right), stored(30, 0.5, right)}) == 20);
    // Values of another metric than the newest checkpoint's do not count.
    CHECK(best_of({stored(10, 0.1), stored(20, 0.9, right), stored(30, 0.5, right)}) == 20);
    StoredCheckpoint damaged = stored(10, 1), infinite = stored(20, 1);
    damaged.is_complete = damaged.is_finite = infinite.is_finite = false;
    CHECK(best_of({damaged, infinite, stored(30, 7)}) == 30);
    // Other held-out data.
    StoredCheckpoint other = stored(10, 1);
    other.judged_by = "eval_loss of other data";
    CHECK(best_of({other, stored(20, 7)}) == 20);
}

TEST_CASE("retention keeps the best checkpoint beside the newest ones") {
    MemoryTree tree;
    CheckpointStore store(tree, kRoot, {1, true});
    const std::vector<double> losses = {3, 2, 2.5, 2.7, 1, 4};
    const std::vector<std::vector<int64_t>> kept = {{10}, {20}, {20, 30}, {20, 40}, {50}, {50, 60}};
    for (size_t i = 0; i < losses.size(); ++i) {
        const int64_t step = static_cast<int64_t>(i + 1) * 10;
        save(tree, store, step, "a" + std::to_string(step), record(step, losses[i]));
        CHECK(steps_in(store) == kept[i]);
        const std::string best = "step-" + std::to_string(kept[i].front());
        CHECK(text_at(tree, kRoot + "/best") == best + "\n");
        CHECK(text_at(tree, kRoot + "/latest") == "step-" + std::to_string(step) + "\n");
        CHECK(find_checkpoints(tree, "/out/best").step_folder == kRoot + "/" + best);
        CHECK(find_checkpoints(tree, kRoot + "/best").step_folder == kRoot + "/" + best);
        CHECK(find_checkpoints(tree, "/out/latest").step_folder ==
              kRoot + "/step-" + std::to_string(step));
    }
    // A run without this setting keeps only the newest.
    CheckpointStore plain(tree, "/b/checkpoints", 1);
    for (const int64_t step : {10, 20})
        save(tree, plain, step, "b" + std::to_string(step), record(step, 0.1 * double(step)));
    CHECK(steps_in(plain) == std::vector<int64_t>{20});
    CHECK(find_checkpoints(tree, "/b/best").step_folder == "/b/checkpoints/step-20");
}

TEST_CASE("a run that goes back to an earlier step has the best of what it goes on from") {
    // The second name belongs to a checkpoint that a killed run was about to replace.
    for (const std::string later : {"step-30", "step-30.old-a3"}) {
        MemoryTree tree;
        CheckpointStore store(tree, kRoot, {2, true});
        for (const int64_t step : {10, 20, 30})
            save(tree, store, step, "a" + std::to_string(step), record(step, 40.0 - double(step)));
        CHECK(text_at(tree, kRoot + "/best") == "step-30\n");
        if (later != "step-30") tree.rename(kRoot + "/step-30", kRoot + "/" + later);
        store.set_aside_later(20, "again");
        CHECK(steps_in(store) == std::vector<int64_t>{20});
        CHECK(fault_in(tree, kRoot + "/abandoned-again-" + later).empty());
        CHECK(find_checkpoints(tree, "/out/best").step_folder == kRoot + "/step-20");
        save(tree, store, 25, "b25", record(25, 50));
        CHECK(text_at(tree, kRoot + "/best") == "step-20\n");
    }
}

TEST_CASE("what names no best checkpoint is refused, and folders of that name are not mistaken") {
    MemoryTree tree;
    CheckpointStore store(tree, kRoot, 0);
    save(tree, store, 10, "a");
    std::string said;
    try {
        static_cast<void>(find_checkpoints(tree, "/out/best"));
    } catch (const Error& error) {
        said = error.what();
    }
    CHECK(said.find("none of the checkpoints in " + kRoot) != std::string::npos);
    CHECK(said.find("--save-best") != std::string::npos);
    CheckpointStore named(tree, "/runs/best/checkpoints", 0);
    save(tree, named, 7, "b");
    CHECK(find_checkpoints(tree, "/runs/best").root == "/runs/best/checkpoints");
    CHECK(find_checkpoints(tree, "/runs/best/latest").step_folder ==
          "/runs/best/checkpoints/step-7");
}

TEST_CASE("a power cut at any moment leaves the best of the promised checkpoints") {
    const std::vector<double> losses = {3, 1, 2, 0.5, 4};
    for (const bool exchanges : {true, false}) {
        MemoryTree tree;
        tree.exchanges = exchanges;
        std::vector<size_t> promised;  // operations after which each save is promised
        {
            CheckpointStore store(tree, kRoot, {1, true});
            for (size_t i = 0; i < losses.size(); ++i) {
                const auto step = static_cast<int64_t>(i + 1);
                save(tree, store, step, std::to_string(step), record(step, losses[i]));
                promised.push_back(tree.ops.size());
            }
        }
        size_t wrong = 0;
        for (size_t prefix = promised.front(); prefix <= tree.ops.size(); ++prefix)
            for (const int kept : {0, 50, 100}) {
                MemoryTree after;
                after.nodes = PowerCut(tree.ops, prefix, {.percent_kept = kept}, prefix).nodes();
                const auto held = static_cast<size_t>(std::ranges::upper_bound(promised, prefix) -
                                                      promised.begin());
                const double least = *std::min_element(
                    losses.begin(), losses.begin() + static_cast<ptrdiff_t>(held));
                const auto all = CheckpointStore(after, kRoot, {1, true}).list();
                const auto best = std::ranges::find_if(all, &StoredCheckpoint::is_best);
                // A save under way may also have become complete.
                if (best == all.end() || best->evaluated->value > least ||
                    !fault_in(after, best->folder).empty())
                    ++wrong;
            }
        CHECK(wrong == 0);
    }
}

TEST_CASE("the record of the evaluations is in the manifest") {
    for (const double value : {2.25, kNan, std::numeric_limits<double>::infinity()}) {
        Checkpoint checkpoint = small_checkpoint(40, "a");
        checkpoint.tensors.clear();
        checkpoint.training.evals = {EvalMetric::kMargins, 40, value, 30, 1.5, 2};
        const Checkpoint back = parse_manifest("m", manifest_text(checkpoint));
        const EvalRecord& evals = back.training.evals;
        CHECK(evals.metric == EvalMetric::kMargins);
        CHECK(evals.step == 40);
        CHECK((evals.value == value || (std::isnan(value) && std::isnan(evals.value))));
        CHECK(evals.best_step == 30);
        CHECK(evals.best == 1.5);
        CHECK(evals.without_gain == 2);
    }
    const Checkpoint plain = small_checkpoint(40, "a");
    CHECK(manifest_text(plain).find("evals") == std::string::npos);
}
