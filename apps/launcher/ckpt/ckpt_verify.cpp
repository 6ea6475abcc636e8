// dslaunch ckpt verify: reads every byte of every file and compares all hashes.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/machine/loop_on_threads.h"
#include "base/path.h"
#include "base/screen.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "launch/machine/machine_topology.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::launcher {
namespace {

struct VerifyArguments {
    std::string path;
    bool no_mark = false;
    bool json = false;
    int threads_count = 0;  // 0: one per processor
};

struct Verdict {
    storage::StoredCheckpoint stored;
    std::vector<std::string> faults;
    std::string unmarked;  // the reason why an intact checkpoint has no mark; empty if marked
    [[nodiscard]] bool whole() const { return faults.empty(); }
};

// Verifies all files of one checkpoint. Returns one message per damaged file; empty if all are
// whole.
std::vector<std::string> faults_of(const storage::CheckpointReader& reader, int threads_count) {
    const std::vector<storage::CheckpointFile>& files = reader.checkpoint().files;
    std::vector<std::string> faults(files.size());
    std::vector<size_t> order(files.size());  // the largest first, so that threads end together
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return files[i].bytes; });
    loop_on_threads(order.size(), static_cast<size_t>(threads_count), [&](size_t i) {
        try {
            faults[order[i]] = reader.verify_file(order[i]);
        } catch (const std::exception& error) {  // no exception may leave the thread
            faults[order[i]] = error.what();
        }
    });
    std::erase(faults, "");
    return faults;
}

Verdict judge(storage::FileTree& tree, const storage::StoredCheckpoint& stored,
              const VerifyArguments& arguments) {
    Verdict verdict{stored, {}, {}};
    try {
        const storage::CheckpointReader reader(tree, stored.folder);
        verdict.faults =
            faults_of(reader, arguments.threads_count > 0 ? arguments.threads_count
                                                          : launch::processors_granted());
        if (!verdict.whole() || arguments.no_mark || stored.is_verified) return verdict;
        try {
            storage::CheckpointReader::mark_verified(tree, reader);
            verdict.stored.is_verified = true;
        } catch (const Error& error) {
            verdict.unmarked = error.what();
        }
    } catch (const Error& error) {
        if (error.code() == ExitCode::kDisk) throw;
        verdict.faults.emplace_back(error.what());
    }
    return verdict;
}

void print_json(const std::vector<Verdict>& verdicts, const std::string& advice) {
    JsonWriter json;
    json.begin_object().key("checkpoints").begin_array();
    for (const Verdict& verdict : verdicts) {
        json.begin_object().field("folder", verdict.stored.folder);
        json.field("step", verdict.stored.step).field("whole", verdict.whole());
        json.field("finite", verdict.stored.is_finite).field("marked", verdict.stored.is_verified);
        json.field("bytes", verdict.stored.bytes.value).key("faults").begin_array();
        for (const std::string& fault : verdict.faults) json.value(fault);
        json.end_array().end_object();
    }
    json.end_array().key("newest_whole");
    advice.empty() ? json.null() : json.value(advice);
    json.end_object();
    fmt::print("{}\n", json.text());
}

void print_text(const std::vector<Verdict>& verdicts) {
    for (const Verdict& verdict : verdicts) {
        if (verdict.whole()) {
            fmt::print("{}: intact, {}{}\n", printable(verdict.stored.folder),
                       to_text(verdict.stored.bytes),
                       verdict.stored.is_finite ? "" : ", but contains a NaN or an infinity");
            continue;
        }
        fmt::print("{}: DAMAGED\n", printable(verdict.stored.folder));
        for (const std::string& fault : verdict.faults) fmt::print("  {}\n", printable(fault));
    }
}

// Returns the folder of the newest checkpoint before STEP that is whole and has no NaN or infinity.
std::string whole_one_before(storage::FileTree& tree, const std::string& damaged, int64_t step,
                             const VerifyArguments& arguments) {
    const std::string root = folder_of(damaged);
    VerifyArguments quiet = arguments;
    quiet.no_mark = true;
    for (const storage::StoredCheckpoint& one : storage::CheckpointStore(tree, root, 0).list()) {
        if (one.step >= step || !one.is_complete || !one.is_finite) continue;
        if (judge(tree, one, quiet).whole()) return one.folder;
    }
    return {};
}

int verify(const VerifyArguments& arguments) {
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    const std::vector<storage::StoredCheckpoint> all = checkpoints_at(*tree, arguments.path);
    if (all.empty())
        fail(ExitCode::kCheckpoint,
             "{}: contains no checkpoint to verify; `dslaunch ckpt ls` lists the checkpoints of a "
             "folder",
             printable(arguments.path));
    std::vector<Verdict> verdicts;
    Progress progress("ckpt", "verifying", std::ssize(all), "checkpoints");
    for (const storage::StoredCheckpoint& stored : all) {
        verdicts.push_back(judge(*tree, stored, arguments));
        progress.done(std::ssize(verdicts));
    }
    const auto damaged =
        std::ranges::find_if(verdicts, [](const Verdict& one) { return !one.whole(); });
    std::string newest;
    for (const Verdict& one : verdicts) {
        if (one.whole() && one.stored.is_finite) {
            newest = one.stored.folder;
            break;
        }
    }
    if (damaged != verdicts.end() && newest.empty())
        newest = whole_one_before(*tree, damaged->stored.folder, damaged->stored.step, arguments);
    progress.end();
    arguments.json ? print_json(verdicts, newest) : print_text(verdicts);
    for (const Verdict& one : verdicts)
        if (!one.unmarked.empty())
            print_message(
                fmt::format("dslaunch: warning: {}: cannot be marked as verified, so a "
                            "later check reads it again (--no-mark writes nothing): {}",
                            printable(one.stored.folder), one.unmarked));
    if (damaged == verdicts.end()) return 0;
    print_message(fmt::format(
        "dslaunch: error: {} of {} checkpoints are damaged; {}",
        std::ranges::count_if(verdicts, [](const Verdict& one) { return !one.whole(); }),
        verdicts.size(),
        newest.empty() ? std::string("no intact checkpoint is left in this folder")
                       : fmt::format("the newest intact one is {}", printable(newest))));
    return static_cast<int>(ExitCode::kCheckpoint);
}

}  // namespace

int ckpt_verify(CommandLine& command, const Parse& parse) {
    VerifyArguments arguments;
    command
        .add("PATH", arguments.path,
             "one step folder, or a folder with checkpoints: then all of them")
        .required();
    command.add("--no-mark", arguments.no_mark, "do not mark intact checkpoints as verified");
    command
        .add("--threads N", arguments.threads_count,
             "number of files to read at once; default: the number of processors")
        .range(1, 1024);
    command.add("--json", arguments.json, "one JSON object");
    return parse() ? verify(arguments) : 0;
}

}  // namespace dslaunch::launcher
