// Training that is saved and resumed: with the same bits at the same shape, and with the same
// values at any other shape, even while the next steps already change the values that are being
// written.
#include <ATen/ops/equal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "fixture_world.h"
#include "runtime/save/files_via_rank0.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch {

using namespace config;
using namespace runtime;
using namespace storage;
using namespace zero;
namespace {

using testing::RankOutcome;
using testing::TrainingCase;

// Every value of a checkpoint by tensor and state, in the order of memory.
using Values = std::map<std::string, std::string>;

Values values_of(const FileTree& tree, const std::string& folder) {
    const CheckpointReader reader(tree, folder);
    const Checkpoint& checkpoint = reader.checkpoint();
    for (size_t f = 0; f < checkpoint.files.size(); ++f) REQUIRE(reader.verify_file(f) == "");
    Values values;
    for (size_t t = 0; t < checkpoint.tensors.size(); ++t) {
        const CheckpointTensor& tensor = checkpoint.tensors[t];
        if (tensor.kind == TensorKind::kRankBuffer) continue;
        const int states =
            tensor.kind == TensorKind::kTrained ? static_cast<int>(checkpoint.states.size()) : 0;
        for (int state = kWeights; state < states; ++state) {
            std::string& into =
                values[state < 0 ? tensor.name : tensor.name + "." + checkpoint.states[state]];
            reader.for_each(static_cast<int>(t), state, {0, tensor.numel()},
                            [&](const Range&, std::span<const std::byte> bytes) {
                                into.append(reinterpret_cast<const char*>(bytes.data()),
                                            bytes.size());
                            });
        }
        values[tensor.name + ".updates"] = std::to_string(tensor.updates);
    }
    return values;
}

std::string step_folder(const std::string& root, int64_t step) {
    return fmt::format("{}/step-{}", root, step);
}

TrainingCase saved_case(std::vector<int> sizes, int stage, FileTree& tree) {
    TrainingCase job{"saved", std::move(sizes)};
    job.optimizer.lr = 0.01;
    job.optimizer.weight_decay = 0.1;
    job.stage = stage;
    job.micro_step = true;
    job.bucket_numel_max = 200;
    job.steps = 3;
    job.tree = &tree;
    return job;
}

// Returns the values that a run has read. If it ends at its step, it saves these values.
Values loaded_and_saved(TrainingCase job, const std::string& from, const std::string& root) {
    job.resume_from = from;
    job.root = root;
    job.save_untrained = true;
    testing::train_world(job);
    return values_of(*job.tree, step_folder(root, job.steps));
}

std::string shape_of(const TrainingCase& job) {
    return fmt::format("{} ranks of {} hosts, stage {}, dtype {}, offload {} {} ratio {}",
                       job.world_size(), job.node_sizes.size(), job.stage,
                       dtype_name(job.precision.compute), job.offload.states,
                       job.offload.parameters, job.offload.ratio);
}

std::vector<TrainingCase> shapes(FileTree& tree, bool all) {
    std::vector<TrainingCase> shapes;
    const std::vector<std::vector<int>> worlds =
        all ? std::vector<std::vector<int>>{{1}, {2}, {3}, {4}, {8}, {2, 1}, {1, 1, 2}}
            : std::vector<std::vector<int>>{{1}, {3}, {2, 1}};
    for (const std::vector<int>& sizes : worlds)
        for (int stage = 0; stage <= 3; ++stage)
            for (const DType dtype : {DType::kF32, DType::kBF16})
                for (int offload = 0; offload < 3; ++offload) {
                    if (offload > 0 && (stage == 0 || (!all && stage != 3))) continue;
                    TrainingCase job = saved_case(sizes, stage, tree);
                    job.precision.compute = dtype;
                    if (offload > 0)
                        job.offload = {true, stage == 3, 48, 3, offload == 1 ? 1 : 0.5};
                    shapes.push_back(job);
                }
    return shapes;
}

// Files that take DELAY whenever bytes come, like a disk that is slower than training.
class SlowSink final : public FileSink {
  public:
    SlowSink(std::unique_ptr<FileSink> sink, std::chrono::microseconds delay)
        : sink_(std::move(sink)), delay_(delay) {}
    void write(std::span<const std::byte> bytes) override {
        std::this_thread::sleep_for(delay_);
        sink_->write(bytes);
    }
    void sync() override { sink_->sync(); }

  private:
    std::unique_ptr<FileSink> sink_;
    std::chrono::microseconds delay_;
};

// Another tree's files below one of its folders. They are slow, or fail, if a test wants that.
class TestTree final : public FileTree {
  public:
    explicit TestTree(FileTree& tree, std::string below = "")
        : tree_(tree), below_(std::move(below)) {}
    std::chrono::microseconds delay{0};
    std::atomic<int> creates_that_fail{0};

    void make_folder(const std::string& path) override { tree_.make_folder(below_ + path); }
    std::unique_ptr<FileSink> create(const std::string& path, Bytes bytes) override {
        if (path.find(".safetensors") != std::string::npos && creates_that_fail > 0) {
            --creates_that_fail;
            fail(ExitCode::kDisk, "{}: no room", path);
        }
        return std::make_unique<SlowSink>(tree_.create(below_ + path, bytes), delay);
    }
    std::unique_ptr<FileView> open(const std::string& path) const override {
        return tree_.open(below_ + path);
    }
    std::optional<std::vector<FolderEntry>> list(const std::string& folder) const override {
        return tree_.list(below_ + folder);
    }
    void rename(const std::string& from, const std::string& to) override {
        tree_.rename(below_ + from, below_ + to);
    }
    bool exchange(const std::string& a, const std::string& b) override {
        return tree_.exchange(below_ + a, below_ + b);
    }
    std::unique_ptr<FileLock> lock(const std::string& path, const std::string& owner) override {
        return tree_.lock(below_ + path, owner);
    }
    void sync_folder(const std::string& folder) override { tree_.sync_folder(below_ + folder); }
    void remove_file(const std::string& path) override { tree_.remove_file(below_ + path); }
    void remove_folder(const std::string& path) override { tree_.remove_folder(below_ + path); }
    Bytes free_room(const std::string& folder) const override {
        return tree_.free_room(below_ + folder);
    }

  private:
    FileTree& tree_;
    std::string below_;
};

std::vector<std::string> folders_in(const FileTree& tree, const std::string& root) {
    std::vector<std::string> names;
    for (const FolderEntry& entry : tree.list(root).value_or(std::vector<FolderEntry>{}))
        if (entry.is_folder) names.push_back(entry.name);
    return names;
}

bool same_run(const RankOutcome& a, const RankOutcome& b) {
    for (const auto& [name, tensor] : a.parameters)
        if (!at::equal(tensor, b.parameters.at(name))) return false;
    for (const auto& [name, tensor] : a.buffers)
        if (!at::equal(tensor, b.buffers.at(name))) return false;
    return a.loss == b.loss && a.updates == b.updates;
}

// Compares a run of 6 steps with the same run, ended and resumed after each of its steps.
void check_resume(TrainingCase job, FileTree& tree, const std::string& root) {
    INFO(shape_of(job) << ", optimizer " << ShardOptimizer::name(job.optimizer));
    job.tree = nullptr;
    job.steps = 6;
    const std::vector<RankOutcome> whole = testing::train_world(job);
    job.tree = &tree;
    job.root = root;
    job.resume_from.clear();
    for (int64_t step = 2; step <= 6; step += 2) {
        job.steps = step;
        const std::vector<RankOutcome> part = testing::train_world(job);
        job.resume_from = step_folder(root, step);
        if (step < 6) continue;
        for (size_t rank = 0; rank < whole.size(); ++rank) CHECK(same_run(part[rank], whole[rank]));
    }
    tree.remove_folder(root);
}

}  // namespace

TEST_CASE("what one shape saves every other reads value by value") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
        TrainingCase first = saved_case({2}, 1, *tree);
        first.precision.compute = dtype;
        first.root = folder.path() + "/first";
        testing::train_world(first);
        const Values values = values_of(*tree, step_folder(first.root, 3));
        std::string last = step_folder(first.root, 3);
        int number = 0;
        // Each shape reads the files that the previous shape has written.
        for (const TrainingCase& job : shapes(*tree, false)) {
            INFO(shape_of(job));
            const std::string root = fmt::format("{}/{}", folder.path(), ++number);
            CHECK(loaded_and_saved(job, last, root) == values);
            last = step_folder(root, 3);
        }
        tree->remove_folder(folder.path());
        tree->make_folder(folder.path());
    }
}

TEST_CASE("what any shape saves every other reads", "[.long]") {
    const test::TemporaryFolder folder("/dev/shm");
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    const std::vector<TrainingCase> all = shapes(*tree, true);
    int cells = 0;
    for (TrainingCase writer : all) {
        writer.root = folder.path() + "/written";
        testing::train_world(writer);
        const std::string written = step_folder(writer.root, 3);
        const Values values = values_of(*tree, written);
        for (const TrainingCase& reader : all) {
            INFO("written by " << shape_of(writer) << "; read by " << shape_of(reader));
            CHECK(loaded_and_saved(reader, written, folder.path() + "/read") == values);
            tree->remove_folder(folder.path() + "/read");
            ++cells;
        }
        tree->remove_folder(writer.root);
    }
    WARN(cells << " cells");
}

TEST_CASE("a run that ends and resumes has the bits of one that does not") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    const std::string root = folder.path() + "/checkpoints";
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2, 1}})
        for (int stage = 0; stage <= 3; ++stage)
            for (const DType dtype : {DType::kF32, DType::kBF16}) {
                if (sizes.size() == 1 && (stage == 1 || stage == 2)) continue;
                TrainingCase job = saved_case(sizes, stage, *tree);
                job.precision.compute = dtype;
                job.accumulation = 2;
                job.clipping = 0.05;
                check_resume(job, *tree, root);
                if (stage == 0) continue;
                job.offload = {true, stage == 3, 48, 2, 1.0};
                check_resume(job, *tree, root);
            }
    for (int stage = 1; stage <= 3; ++stage) {
        TrainingCase job = saved_case({2, 2}, stage, *tree);
        job.shard_group = 2;
        job.clipping = 0.05;
        check_resume(job, *tree, root);
    }
    for (const OptimizerKind kind :
         {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kAdagrad,
          OptimizerKind::kLion})
        for (const double momentum : {0.0, 0.9}) {
            if (momentum > 0 && kind != OptimizerKind::kSgd) continue;
            TrainingCase job = saved_case({2}, 2, *tree);
            job.optimizer.kind = kind;
            job.optimizer.momentum = momentum;
            check_resume(job, *tree, root);
        }
    for (const bool on_disk : {false, true}) {
        TrainingCase job = saved_case({2}, 3, *tree);
        job.optimizer.amsgrad = true;
        job.optimizer.beta2 = 0.5;
        if (on_disk) job.offload = {true, true, 48, 2, 1.0};
        check_resume(job, *tree, root);
    }
}

TEST_CASE("what is saved while training goes on is the state of its step") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> disk = make_disk_tree();
    TestTree tree(*disk);
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {2, 1}})
        for (const int stage : {0, 1, 3})
            for (const bool offload : {false, true}) {
                if (offload && stage == 0) continue;
                TrainingCase job = saved_case(sizes, stage, tree);
                if (offload) job.offload = {true, stage == 3, 48, 3, 0.5};
                INFO(shape_of(job));
                job.steps = 5;
                job.save.interval = 1;
                job.root = folder.path() + "/still";
                job.save.async = false;
                testing::train_world(job);
                job.save.async = true;
                job.root = folder.path() + "/moving";
                tree.delay = std::chrono::microseconds(300);
                testing::train_world(job);
                tree.delay = {};
                for (int64_t step = 1; step <= job.steps; ++step)
                    CHECK(values_of(tree, step_folder(folder.path() + "/moving", step)) ==
                          values_of(tree, step_folder(folder.path() + "/still", step)));
                disk->remove_folder(folder.path() + "/still");
                disk->remove_folder(folder.path() + "/moving");
            }
}

TEST_CASE("a save that fails ends the run, or does not, and is gone") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> disk = make_disk_tree();
    TestTree tree(*disk);
    TrainingCase job = saved_case({2}, 1, tree);
    job.steps = 6;
    job.save.interval = 2;
    job.root = folder.path() + "/checkpoints";
    tree.creates_that_fail = 1;
    CHECK_THROWS_WITH(testing::train_world(job),
                      Catch::Contains("step 2") && Catch::Contains("no room"));
    tree.creates_that_fail = 1;
    job.save.goes_on = true;
    CHECK_NOTHROW(testing::train_world(job));
    CHECK(folders_in(tree, job.root) == std::vector<std::string>{"step-4", "step-6"});
}

TEST_CASE("hosts that share no file system save to the first one's disk, and read from it") {
    const test::TemporaryFolder folder;
    const std::unique_ptr<FileTree> disk = make_disk_tree();
    std::vector<std::unique_ptr<TestTree>> trees;
    for (const char* host : {"/first", "/second", "/third"}) {
        disk->make_folder(folder.path() + host);
        trees.push_back(std::make_unique<TestTree>(*disk, folder.path() + host));
    }
    TrainingCase job = saved_case({2, 1, 2}, 3, *trees[0]);
    job.root = "/checkpoints";
    testing::train_world(job);
    const Values values = values_of(*trees[0], "/checkpoints/step-3");
    trees[0]->remove_folder("/checkpoints");
    for (const auto& tree : trees) job.trees.push_back(tree.get());
    testing::train_world(job);
    CHECK(values_of(*trees[0], "/checkpoints/step-3") == values);
    CHECK(folders_in(*trees[1], "/checkpoints.host-1").empty());
    CHECK(folders_in(*trees[2], "/checkpoints.host-2").empty());

    testing::InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    testing::run_world(world, [&](testing::InProcessRank& self, int) {
        const auto node = static_cast<size_t>(self.collectives->topology().node_rank);
        bring_to_all(*trees[node], *self.collectives, "/checkpoints/step-3", "/copy");
    });
    CHECK(values_of(*trees[1], "/copy") == values);
    CHECK(values_of(*trees[2], "/copy") == values);

    // If a disk fails during a save, the save ends on all hosts and leaves nothing. Hosts that do
    // share a file system, with rank 0 or among each other, do not disturb each other.
    for (const std::vector<size_t>& shared : {std::vector<size_t>{0, 0, 0}, {0, 1, 1}}) {
        trees[0]->remove_folder("/checkpoints");
        for (size_t node = 0; node < shared.size(); ++node)
            job.trees[node] = trees[shared[node]].get();
        testing::train_world(job);
        CHECK(values_of(*trees[0], "/checkpoints/step-3") == values);
    }
    for (size_t node = 0; node < trees.size(); ++node) job.trees[node] = trees[node].get();
    trees[0]->remove_folder("/checkpoints");
    trees[0]->creates_that_fail = 5;
    CHECK_THROWS_WITH(testing::train_world(job), Catch::Contains("no room"));
    CHECK(folders_in(*trees[0], "/checkpoints").empty());
}

}  // namespace dslaunch
