// Saving a checkpoint and reading it back, on a disk and in memory.
#include "storage/checkpoint/checkpoint_store.h"

#include <sys/syscall.h>

#include <cerrno>
#include <chrono>

#include "memory_tree.h"
#include "save_tools.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "support/refused_call.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

std::vector<std::string> names_in(const FileTree& tree, const std::string& folder) {
    std::vector<std::string> names;
    const auto entries = tree.list(folder);
    for (const FolderEntry& entry : entries.value()) names.push_back(entry.name);
    return names;
}

std::string message_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    }
    return "";
}

}  // namespace

TEST_CASE("later steps of a run that is not gone on from move out of the way") {
    MemoryTree tree;
    const std::string root = "/out/checkpoints";
    {
        CheckpointStore first(tree, root, 0);
        for (const int64_t step : {10, 20, 30}) save(tree, first, step, fmt::format("a{}", step));
    }
    CheckpointStore second(tree, root, 2);
    save(tree, second, 15, "b15");
    const auto stored = second.list();
    REQUIRE(stored.size() == 2);
    CHECK(stored[0].step == 15);
    CHECK(stored[1].step == 10);
    CHECK(fault_in(tree, root + "/abandoned-b15-step-30").empty());
    save(tree, second, 20, "b20");
    CHECK(second.list().front().step == 20);
    CHECK(names_in(tree, root) == std::vector<std::string>{".lock", "abandoned-b15-step-20",
                                                           "abandoned-b15-step-30", "latest",
                                                           "step-15", "step-20"});
}

TEST_CASE("a checkpoint that was saved reads back, on a disk and in memory") {
    const TemporaryFolder folder;
    const auto disk = make_disk_tree();
    MemoryTree memory;
    for (FileTree* tree : std::initializer_list<FileTree*>{disk.get(), &memory}) {
        const std::string parent = (tree == &memory ? std::string() : folder.path()) + "/out";
        const std::string root = parent + "/checkpoints";
        CheckpointStore store(*tree, root, 2);
        CHECK(store.list().empty());
        for (int64_t step = 1; step <= 4; ++step)
            CHECK(save(*tree, store, step, fmt::format("g{}", step)) ==
                  fmt::format("{}/step-{}", root, step));
        CHECK(save(*tree, store, 4, "g5") == root + "/step-4");
        const auto stored = store.list();
        REQUIRE(stored.size() == 2);
        CHECK(stored[0].step == 4);
        CHECK(stored[1].step == 3);
        for (const StoredCheckpoint& each : stored) {
            CHECK(each.is_complete);
            CHECK(each.is_finite);
            CHECK_FALSE(each.is_verified);
            CHECK(fault_in(*tree, each.folder).empty());
        }
        CHECK(CheckpointReader(*tree, stored[0].folder).checkpoint().id == "g5");
        CHECK(names_in(*tree, root) ==
              std::vector<std::string>{".lock", "latest", "step-3", "step-4"});
        CHECK(find_checkpoints(*tree, parent + "/").root == root);
        CHECK(find_checkpoints(*tree, root).root == root);
        CHECK(find_checkpoints(*tree, root + "/step-3/").step_folder == root + "/step-3");
    }
    CHECK(folder.read("out/checkpoints/latest") == "step-4\n");
}

TEST_CASE("each file is valid safetensors with data at a multiple of 4096 bytes") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    CheckpointStore store(*tree, folder.path(), 0);
    const std::string step = save(*tree, store, 7, "x");
    const SafetensorsFile weights(step + "/weights-00000-of-00002.safetensors");
    REQUIRE(weights.entries().size() == 2);
    CHECK(weights.entries()[0].name == "w[0:9]");
    CHECK(weights.entries()[0].shape == std::vector<int64_t>{3, 3});
    CHECK(weights.entries()[1].name == "f");
    CHECK(weights.entries()[1].shape == std::vector<int64_t>{5});
    CHECK(weights.metadata().at("format") == "pt");
    CHECK(weights.metadata().at("checkpoint") == "x");
    CHECK(weights.metadata().at("step") == "7");
    const SafetensorsFile states(step + "/optimizer-00001-of-00002.safetensors");
    CHECK(states.entries().at(0).name == "w.exp_avg[9:21]");
    const CheckpointReader reader(*tree, step);
    for (const CheckpointFile& file : reader.checkpoint().files)
        CHECK(file.pieces[0].offset_bytes % 4096 == 0);
}

TEST_CASE("a verified mark counts for the checkpoint it was made of alone") {
    MemoryTree tree;
    CheckpointStore store(tree, "/c", 0);
    const std::string first = save(tree, store, 1, "a");
    CheckpointReader::mark_verified(tree, CheckpointReader(tree, first));
    CHECK(store.list().at(0).is_verified);
    const std::string mark = tree.data(first + "/verified");
    const std::string second = save(tree, store, 2, "b");
    CheckpointReader::mark_verified(tree, CheckpointReader(tree, second));
    tree.data(second + "/verified") = mark;
    CHECK_FALSE(store.list().at(0).is_verified);
}

TEST_CASE("two runs do not save to one folder, and a run that is gone leaves nothing behind") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    auto first = std::make_unique<CheckpointStore>(*tree, folder.path(), 0);
    const std::string unfinished = first->begin(1, "a", Bytes{1});
    CheckpointStore second(*tree, folder.path(), 0);
    CHECK_THAT(message_of([&] { static_cast<void>(second.begin(1, "b", Bytes{1})); }),
               Catch::Contains("73: ") && Catch::Contains("another run is saving"));
    CHECK(tree->list(unfinished));
    first.reset();
    save(*tree, second, 2, "b");
    CHECK_FALSE(tree->list(unfinished));
}

TEST_CASE("who holds a folder of checkpoints is named, and waited for as long as told") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    const std::string root = folder.path() + "/checkpoints";
    auto held = claim_checkpoints(*tree, root, {.owner = "job a, attempt 0, on host h1"});
    CHECK_THAT(message_of([&] { static_cast<void>(claim_checkpoints(*tree, root)); }),
               Catch::Contains("73: ") && Catch::Contains("job a, attempt 0, on host h1"));
    std::vector<std::string> told;
    CheckpointClaim claim;
    claim.owner = "job a, attempt 1, on host h2";
    claim.wait_max = std::chrono::minutes(10);
    // The holder ends as soon as somebody waits for it.
    claim.told = [&](const std::string& line) {
        told.push_back(line);
        held.reset();
    };
    const auto taken = claim_checkpoints(*tree, root, claim);
    CHECK(taken != nullptr);
    REQUIRE(told.size() == 1);
    CHECK_THAT(told[0], Catch::Contains("job a, attempt 0, on host h1"));
    CHECK(folder.read("checkpoints/.lock") == "job a, attempt 1, on host h2\n");
    claim.wait_max = std::chrono::milliseconds(150);
    const auto began = std::chrono::steady_clock::now();
    CHECK_THAT(message_of([&] { static_cast<void>(claim_checkpoints(*tree, root, claim)); }),
               Catch::Contains("attempt 1"));
    CHECK(std::chrono::steady_clock::now() - began >= claim.wait_max);
}

TEST_CASE("a lock that a server does not give is no lock, one that a file system lacks is said") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    CHECK(holds_without_call(__NR_flock, ENOLCK, [&] {
        const std::string message =
            message_of([&] { static_cast<void>(claim_checkpoints(*tree, folder.path())); });
        return message.starts_with("72: ") && message.find("lock service") != std::string::npos;
    }));
    CHECK(holds_without_call(__NR_flock, EOPNOTSUPP,
                             [&] { return claim_checkpoints(*tree, folder.path()) != nullptr; }));
}

TEST_CASE("a save that does not fit is refused before anything is written") {
    MemoryTree tree;
    tree.room = mib(1);
    CheckpointStore store(tree, "/c", 0);
    CHECK_THAT(message_of([&] { static_cast<void>(store.begin(3, "a", mib(2))); }),
               Catch::Contains("72: ") && Catch::Contains("needs 2.0 MiB") &&
                   Catch::Contains("1.0 MiB are free"));
    CHECK(names_in(tree, "/c") == std::vector<std::string>{".lock"});
}

TEST_CASE("a checkpoint with a NaN in it is complete and not finite") {
    MemoryTree tree;
    CheckpointStore store(tree, "/c", 0);
    Checkpoint checkpoint = small_checkpoint(1, "a");
    const std::string folder = store.begin(1, "a", Bytes{1});
    for (int rank = 0; rank < kRanks; ++rank)
        for (const ShardPlan& plan : small_plans(rank)) {
            ShardWriter writer(tree, folder, plan, checkpoint);
            for (const CheckpointPiece& piece : plan.pieces) {
                std::string bytes = small_bytes(checkpoint, piece);
                // The last element of the frozen tensor is an infinity of bf16, split in two.
                if (piece.tensor == 1) {
                    bytes[8] = '\x80';
                    bytes[9] = '\x7F';
                }
                writer.write(std::as_bytes(std::span(bytes).first(9)));
                writer.write(std::as_bytes(std::span(bytes).subspan(9)));
            }
            checkpoint.files.push_back(writer.finish());
        }
    store.commit(checkpoint);
    CHECK(store.list().at(0).is_complete);
    CHECK_FALSE(store.list().at(0).is_finite);
    int not_finite = 0;
    const CheckpointReader reader(tree, "/c/step-1");
    for (const CheckpointFile& file : reader.checkpoint().files)
        for (const WrittenPiece& piece : file.pieces) not_finite += piece.is_finite ? 0 : 1;
    CHECK(not_finite == 1);
}

TEST_CASE("a file that one host alone has is found before the checkpoint counts") {
    MemoryTree tree;
    CheckpointStore store(tree, "/c", 0);
    Checkpoint checkpoint = small_checkpoint(1, "a");
    const std::string folder = store.begin(1, "a", Bytes{1});
    for (int rank = 0; rank < kRanks; ++rank)
        for (const ShardPlan& plan : small_plans(rank))
            checkpoint.files.push_back(write_shard(tree, folder, plan, checkpoint));
    tree.remove_file(folder + "/weights-00001-of-00002.safetensors");
    CHECK_THAT(message_of([&] { store.commit(checkpoint); }),
               Catch::Contains("73: ") && Catch::Contains("weights-00001-of-00002") &&
                   Catch::Contains("one file system"));
    CHECK(store.list().empty());
}

TEST_CASE("what is large and of any length reads back from a disk as it was written") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    for (const int64_t length :
         {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{4097}, int64_t{8} << 20,
          (int64_t{8} << 20) + 1, (int64_t{50} << 20) + 12345}) {
        std::string bytes(static_cast<size_t>(length), '\0');
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
        const std::string path = fmt::format("{}/{}", folder.path(), length);
        const auto sink = tree->create(path, Bytes{length});
        for (size_t at = 0; at < bytes.size(); at += 1'000'003)
            sink->write(std::as_bytes(
                std::span(bytes).subspan(at, std::min<size_t>(1'000'003, bytes.size() - at))));
        sink->sync();
        const auto view = tree->open(path);
        const std::string_view read(reinterpret_cast<const char*>(view->bytes().data()),
                                    view->bytes().size());
        CHECK((read == bytes));
    }
}

TEST_CASE("a checkpoint that was set aside is named by its new name") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    std::filesystem::create_directories(folder.path() + "/abandoned-a1-step-6");
    const auto told = [&](const std::string& name) {
        return message_of(
            [&] { static_cast<void>(find_checkpoints(*tree, folder.path() + name)); });
    };
    CHECK_THAT(told("/step-6"),
               Catch::Contains("was renamed to " + folder.path() + "/abandoned-a1-step-6"));
    CHECK_THAT(told("/step-5"), Catch::Contains("no such folder"));
}

TEST_CASE(
    "an output folder with files that a run copies from its model is refused by their names") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    for (const char* name : {"vocab.txt", "config.json", "tokenizer.py"})
        write_file(folder.path() + "/" + name, "mine");
    const std::vector<std::string> copied = {"config.json", "tokenizer.json", "vocab.txt"};
    CHECK_THAT(
        message_of([&] { require_unused_output(*tree, folder.path(), false, copied); }),
        Catch::Contains("73: ") && Catch::Contains("already contains config.json, vocab.txt"));
    CHECK_NOTHROW(require_unused_output(*tree, folder.path()));
}
