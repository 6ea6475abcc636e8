// Any damage of a checkpoint is found: changed bits, other lengths, exchanged files, and files of
// another save. A whole checkpoint never looks damaged.
#include <unistd.h>

#include "memory_tree.h"
#include "save_tools.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// Returns the fault that the reader finds in the files. The values themselves are not compared.
std::string verdict(const FileTree& tree, const std::string& folder) {
    try {
        const CheckpointReader reader(tree, folder);
        for (size_t i = 0; i < reader.checkpoint().files.size(); ++i)
            if (std::string fault = reader.verify_file(i); !fault.empty()) return fault;
        return "";
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kCheckpoint);
        return error.what();
    }
}

struct Saved {
    MemoryTree tree;
    CheckpointStore store{tree, "/c", 0};
    std::vector<std::string> files;
    Saved() {
        save(tree, store, 1, "a");
        save(tree, store, 2, "b");
        const auto entries = tree.list("/c/step-2");
        for (const FolderEntry& entry : *entries) files.push_back(entry.name);
        REQUIRE(files.size() == 5);
        REQUIRE(verdict(tree, "/c/step-2").empty());
    }
    std::string& data(const std::string& file, int step = 2) {
        return tree.data(fmt::format("/c/step-{}/{}", step, file));
    }
};

// Flips every STRIDE-th bit of every file.
void flip_bits(size_t stride) {
    Saved saved;
    int64_t missed_count = 0, tried_count = 0, unnamed_count = 0;
    for (const std::string& file : saved.files) {
        std::string& data = saved.data(file);
        for (size_t bit = 0; bit < data.size() * 8; bit += stride) {
            const auto flip = static_cast<char>(1 << bit % 8);
            data[bit / 8] = static_cast<char>(data[bit / 8] ^ flip);
            const std::string said = verdict(saved.tree, "/c/step-2");
            missed_count += said.empty() ? 1 : 0;
            unnamed_count += said.find(file) == std::string::npos ? 1 : 0;
            ++tried_count;
            data[bit / 8] = static_cast<char>(data[bit / 8] ^ flip);
        }
    }
    CHECK(tried_count > static_cast<int64_t>(4 * 4096 * 8 / stride));
    CHECK(missed_count == 0);
    CHECK(unnamed_count == 0);
    CHECK(verdict(saved.tree, "/c/step-2").empty());
}

}  // namespace

TEST_CASE("every single bit of a checkpoint that changes is found", "[.long]") {
    flip_bits(1);
}

TEST_CASE("a bit of a checkpoint that changes is found") {
    flip_bits(11);
}

TEST_CASE("a file cut at any length is found, and so is one that goes on") {
    Saved saved;
    for (const std::string& file : saved.files) {
        std::string& data = saved.data(file);
        const std::string whole = data;
        int64_t missed_count = 0;
        for (size_t length = 0; length < whole.size(); ++length) {
            data = whole.substr(0, length);
            missed_count += verdict(saved.tree, "/c/step-2").empty() ? 1 : 0;
        }
        data = whole + " ";
        missed_count += verdict(saved.tree, "/c/step-2").empty() ? 1 : 0;
        data = whole;
        CHECK(missed_count == 0);
    }
    CHECK(saved.store.list().at(0).is_complete);
}

TEST_CASE("files in each other's place, of another step and missing ones are found") {
    Saved saved;
    for (const std::string& file : saved.files) {
        for (const std::string& other : saved.files) {
            if (file == other) continue;
            std::swap(saved.data(file), saved.data(other));
            CHECK_FALSE(verdict(saved.tree, "/c/step-2").empty());
            std::swap(saved.data(file), saved.data(other));
        }
        std::swap(saved.data(file), saved.data(file, 1));
        const bool manifest = file == "manifest.json";
        CHECK_FALSE(verdict(saved.tree, "/c/step-2").empty());
        // The files have the same lengths, so only reading them shows it, except for the manifest's
        // own step.
        CHECK(saved.store.list().at(0).is_complete == !manifest);
        std::swap(saved.data(file), saved.data(file, 1));
        const std::string path = "/c/step-2/" + file, aside = "/c/step-2/aside";
        saved.tree.rename(path, aside);
        CHECK_FALSE(verdict(saved.tree, "/c/step-2").empty());
        CHECK_FALSE(saved.store.list().at(0).is_complete);
        saved.tree.rename(aside, path);
    }
    CHECK(verdict(saved.tree, "/c/step-2").empty());
    CHECK(verdict(saved.tree, "/c/step-1").empty());
}

TEST_CASE("a file that is cut off while it is read ends the process with its name and code 73") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    CheckpointStore store(*tree, folder.path(), 0);
    save(*tree, store, 2, "b");
    const ChildResult child = in_child([&] {
        const CheckpointReader reader(*tree, folder.path() + "/step-2");
        const std::string path =
            fmt::format("{}/step-2/{}", folder.path(), reader.checkpoint().files[1].name);
        if (::truncate(path.c_str(), 0) != 0) return std::string("it cannot be cut off");
        return reader.verify_file(1);
    });
    const std::string& said = child.err;
    INFO(said << child.text);
    CHECK(child.ended_well);
    CHECK(child.exit_code == static_cast<int>(ExitCode::kCheckpoint));
    CHECK(said.find(folder.path() + "/step-2/") != std::string::npos);
    CHECK(said.find("truncated while it was in use") != std::string::npos);
}
