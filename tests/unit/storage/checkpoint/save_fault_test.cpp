// Every call of a save fails in turn: earlier saves stay whole, and nothing unfinished is left.
#include "../disk_test_tools.h"
#include "memory_tree.h"
#include "save_tools.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/skip.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// Returns "" if the two earlier saves are whole and the failed one has left nothing.
std::string damage(MemoryTree& tree, const CheckpointStore& store) {
    int whole_count = 0;
    for (const StoredCheckpoint& stored : store.list()) {
        if (!stored.is_complete) return stored.fault;
        if (const std::string fault = fault_in(tree, stored.folder); !fault.empty()) return fault;
        ++whole_count;
    }
    return whole_count >= 2 ? "" : fmt::format("{} checkpoints are left", whole_count);
}

bool unfinished(const MemoryTree& tree) {
    const auto entries = tree.list("/c");
    for (const FolderEntry& entry : *entries)
        if (entry.name.find(".tmp-") != std::string::npos) return true;
    return false;
}

}  // namespace

TEST_CASE("a save of which any call fails leaves the old checkpoints whole and nothing else") {
    int64_t failed_count = 0, survived_count = 0;
    for (const bool exchanges : {true, false})
        for (const int64_t step : {int64_t{3}, int64_t{2}})
            for (const int error_number : {ENOSPC, EDQUOT, EIO, EROFS})
                for (int64_t index = 0;; ++index) {
                    MemoryTree tree;
                    tree.exchanges = exchanges;
                    CheckpointStore store(tree, "/c", 2);
                    save(tree, store, 1, "a");
                    save(tree, store, 2, "b");
                    const int64_t before = tree.calls;
                    tree.fail_at = before + index;
                    tree.fail_with = error_number;
                    std::string message;
                    try {
                        save(tree, store, step, "c");
                    } catch (const Error& error) {
                        message = error.what();
                        CHECK(error.code() == ExitCode::kDisk);
                    }
                    if (tree.calls <= tree.fail_at) break;  // the save makes fewer calls
                    INFO(fmt::format("call {}, {}, {}", index, errno_text(error_number), message));
                    CHECK(damage(tree, store) == "");
                    (message.empty() ? survived_count : failed_count) += 1;
                    if (!message.empty()) {
                        CHECK_FALSE(unfinished(tree));
                        CHECK_THAT(message, Catch::Contains("/c") &&
                                                Catch::Contains(errno_text(error_number)));
                    }
                    // The next save, in which nothing fails, works as usual.
                    save(tree, store, 5, "d");
                    CHECK_FALSE(unfinished(tree));
                    CHECK(damage(tree, store) == "");
                }
    CHECK(failed_count > 300);
    CHECK(survived_count > 10);  // errors in removing old saves do not fail a save
}

TEST_CASE("a full disk is told with path, need and free room, and a mount that is read-only too") {
    const ChildResult child = in_child([]() -> std::string {
        const TemporaryFolder folder;
        if (!mount_disk(folder.path(), "tmpfs", "size=1m")) return "no mount";
        const auto tree = make_disk_tree();
        auto store = std::make_unique<CheckpointStore>(*tree, folder.path() + "/c", 2);
        save(*tree, *store, 1, "a");
        std::string said;
        try {
            static_cast<void>(store->begin(2, "b", mib(3)));
        } catch (const Error& error) {
            said = error.what();
        }
        if (said.find("needs 3.0 MiB") == std::string::npos) return said;
        try {
            static_cast<void>(tree->create(folder.path() + "/c/big", mib(3)));
            return "3 MiB fit 1 MiB";
        } catch (const Error& error) {
            said = error.what();
        }
        for (const char* word :
             {"/c/big", "3.0 MiB needed", "ENOSPC", "are free there", "--output"})
            if (said.find(word) == std::string::npos) return said;
        store = std::make_unique<CheckpointStore>(*tree, folder.path() + "/c", 2);
        if (::mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
            return "no remount";
        try {
            save(*tree, *store, 3, "c");
            return "written to what is read-only";
        } catch (const Error& error) {
            said = error.what();
        }
        if (said.find("EROFS") == std::string::npos) return said;
        const std::string fault = fault_in(*tree, folder.path() + "/c/step-1");
        ::umount(folder.path().c_str());
        return fault;
    });
    if (child.text == "no mount") {
        report_skipped("saving to a full disk", "this user may not mount a tmpfs");
        return;
    }
    CHECK(child.ended_well);
    CHECK(child.text == "");
}
