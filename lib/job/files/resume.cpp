#include "job/files/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launch/machine/machine_name.h"
#include "runtime/save/files_via_rank0.h"
#include "storage/adapter/adapter_config.h"
#include "storage/checkpoint/checkpoint_store.h"

namespace dslaunch::job {

namespace {

constexpr std::string_view kAuto = "auto";
// Network file systems may show a new file in a folder with a delay.
constexpr std::chrono::seconds kSharedFolderWait{10};

// Returns rank 0's TEXT on all ranks.
std::string agreed(runtime::Collectives& collectives, std::string text) {
    if (collectives.topology().rank() != 0) text.clear();
    return collectives.all_gather(text).front();
}

// Returns the usable checkpoints in ROOT, newest first; empty if the folder does not exist. A
// usable checkpoint is complete and contains no NaN or infinity. If LAUNCH is not empty, the list
// begins with the newest usable checkpoint that LAUNCH has saved. Warns about unusable checkpoints
// that are newer than the first one in the list.
std::vector<std::string> candidates_in(storage::FileTree& tree, const std::string& root,
                                       const std::string& launch = "") {
    std::vector<std::string> folders;
    for (const storage::StoredCheckpoint& stored : storage::CheckpointStore(tree, root, 0).list()) {
        if (folders.empty() && !launch.empty() && stored.is_complete && stored.launch != launch)
            continue;
        if (stored.is_complete && stored.is_finite) {
            folders.push_back(stored.folder);
        } else if (folders.empty()) {
            log_warn("checkpoint", "skipping {}: {}", stored.folder,
                     stored.is_complete ? "it contains NaN or infinity" : stored.fault);
        }
    }
    return folders;
}

// Returns the checkpoints in the folder PATH, which the user named. If PATH itself is a checkpoint,
// returns only PATH.
std::vector<std::string> candidates_of(storage::FileTree& tree, const std::string& path) {
    const storage::CheckpointPlace place = storage::find_checkpoints(tree, path);
    if (!place.step_folder.empty()) return {place.step_folder};
    return candidates_in(tree, place.root);
}

// Returns checkpoints that might be used in place of FOLDER, the checkpoint that the user named.
// They are in the same parent folder, and are from earlier steps.
std::vector<std::string> earlier_ones(storage::FileTree& tree, const std::string& folder) {
    const std::string root = folder_of(folder);
    std::vector<std::string> folders;
    bool passed = false;
    for (const storage::StoredCheckpoint& stored : storage::CheckpointStore(tree, root, 0).list()) {
        if (passed && stored.is_complete && stored.is_finite) folders.push_back(stored.folder);
        passed = passed || stored.folder == folder;
    }
    return folders;
}

// Returns true if OUTPUT shows that a run did steps: its metrics file is not empty. (The launcher
// creates the file before the first step.)
bool has_metrics(storage::FileTree& tree, const std::string& output) {
    for (const storage::FolderEntry& entry :
         tree.list(output).value_or(std::vector<storage::FolderEntry>{}))
        if (entry.name == "metrics.jsonl" && entry.bytes.value > 0) return true;
    return false;
}

struct Opened {
    std::unique_ptr<storage::CheckpointReader> reader;
    std::string fault;  // first fault that any rank found, the same on all ranks; empty: none
};

// Opens and verifies the checkpoint in FOLDER. READERS is the number of ranks that can read the
// folder.
Opened open_and_verify(storage::FileTree& tree, runtime::Collectives& collectives,
                       const std::string& folder, int readers) {
    Opened opened;
    std::string fault;
    const int rank = collectives.topology().rank();
    try {
        if (rank < readers) {
            opened.reader = std::make_unique<storage::CheckpointReader>(tree, folder);
            const size_t files = opened.reader->checkpoint().files.size();
            for (auto f = static_cast<size_t>(rank); f < files && fault.empty();
                 f += static_cast<size_t>(readers))
                fault = opened.reader->verify_file(f);
        }
    } catch (const Error& error) {
        fault = error.what();
    }
    for (std::string& one : collectives.all_gather(fault))
        if (opened.fault.empty()) opened.fault = std::move(one);
    if (!opened.fault.empty()) opened.reader.reset();
    return opened;
}

// Warns that training begins at step 0. Throws Error{kCheckpoint} instead if PATH shows that an
// earlier run did steps but saved nothing.
void tell_nothing_to_resume(storage::FileTree& tree, const ResumeRequest& request,
                            const std::string& path) {
    if (!request.restarted && has_metrics(tree, path)) {
        const auto found = tree.list(path);
        const bool has_weights =
            found && std::ranges::any_of(*found, [](const storage::FolderEntry& entry) {
                return entry.name == "model.safetensors" || entry.name == storage::kAdapterFolder;
            });
        if (has_weights)
            fail(ExitCode::kCheckpoint,
                 "{0}: the folder has the weights of a run, but no complete checkpoint: the run's "
                 "checkpoints were moved or removed. To begin again, give another --output. To "
                 "continue from the weights with a new optimizer, also give {0} as the model",
                 path);
        // The folder contains config files that the run copied there. A new run refuses such an
        // --output, so the message must not suggest to start again in this folder.
        if (found && std::ranges::count(*found, "config.json", &storage::FolderEntry::name) > 0)
            fail(ExitCode::kCheckpoint,
                 "{}: this run's checkpoints and weights were moved or removed: give another "
                 "--output to begin again",
                 path);
        fail(ExitCode::kCheckpoint,
             "{}: there is no complete checkpoint, only metrics.jsonl of an earlier run: that run "
             "ended before its first save, or its checkpoints were removed. Start again without "
             "--resume (metrics.jsonl is then renamed), or use --output to name the folder of the "
             "run to resume",
             path);
    }
    // A restarted run looks for checkpoints on its own, so it is normal that there are none. But
    // with `via_first`, the checkpoints may be on the disk of a host that is gone: this is worth a
    // warning.
    if (request.restarted && request.via_first) {
        log_warn(
            "checkpoint",
            "no complete checkpoint in {} on {}: training begins at step 0. With --save-via rank0, "
            "checkpoints are only on the disk of the host that rank 0 was on. If that was another "
            "host, press Ctrl-C, wait until that host is back, and go on with --resume",
            path, launch::machine_name());
    } else if (request.restarted) {
        log_info("checkpoint", "no complete checkpoint in {}: training begins at step 0", path);
    } else {
        log_warn("checkpoint",
                 "--resume: there is no checkpoint in {}: training begins at step 0; is --output "
                 "the folder of the run to resume?",
                 path);
    }
}

// Warns if the file `latest`, which people edit to choose a checkpoint, does not name FOLDER. PATH
// is where the checkpoint was looked for.
void tell_other_latest(const storage::FileTree& tree, const std::string& path,
                       const std::string& folder) {
    const std::string other = storage::other_latest_text(tree, path, folder, "--resume=");
    if (!other.empty()) log_warn("checkpoint", "{}", other);
}

// Throws Error{kCheckpoint} if a host other than rank 0's has checkpoints in OUTPUT: rank 0 was on
// that host in an earlier run. All ranks call it.
void require_none_elsewhere(storage::FileTree& tree, runtime::Collectives& collectives,
                            const std::string& output) {
    const runtime::Topology& topology = collectives.topology();
    const bool looks = topology.node_rank > 0 && topology.local_rank == 0;
    std::string host;
    if (looks && !candidates_in(tree, output + "/checkpoints").empty())
        host = launch::machine_name();
    for (const std::string& name : collectives.all_gather(host)) {
        if (name.empty()) continue;
        fail(ExitCode::kCheckpoint,
             "{}/checkpoints: host {} has checkpoints there, but rank 0 is on another host now, "
             "which has no checkpoints. With --save-via rank0, a run resumes from the disk of rank "
             "0's host: list {} first in the hostfile, or copy the folder to the host of rank 0; "
             "then go on with --resume",
             output, name, name);
    }
}

}  // namespace

std::string checkpoints_of_host(const std::string& output, int node_rank) {
    return fmt::format("{}/checkpoints.host-{}", output, node_rank);
}

std::string resume_copy(const std::string& output, int node_rank) {
    return checkpoints_of_host(output, node_rank) + "/resume.copy";
}

std::unique_ptr<storage::CheckpointReader> find_resume(storage::FileTree& tree,
                                                       runtime::Collectives& collectives,
                                                       const ResumeRequest& request) {
    const bool first = collectives.topology().rank() == 0;
    const bool own_first = request.from == kAuto || (request.restarted && !request.output.empty());
    std::string path = own_first ? request.output : request.from;
    if (path.empty()) return nullptr;
    const bool named = !request.from.empty() && request.from != kAuto;
    std::vector<std::string> folders;
    // A job that goes back to an earlier checkpoint sets the later checkpoints aside before its
    // first step. If the job ended before that, its folder may still contain later checkpoints,
    // which belong to another run.
    if (first)
        folders = own_first ? candidates_in(tree, path + "/checkpoints",
                                            named ? request.launch : std::string())
                            : candidates_of(tree, path);
    const auto list = [&] { return agreed(collectives, join(folders, "\n")); };
    std::string found = list();
    if (found.empty() && own_first && named) {  // nothing was saved since the job began
        path = request.from;
        if (first) folders = candidates_of(tree, path);
        found = list();
    }
    std::string damage;
    bool offering = false;  // true: the named checkpoint is damaged; looks for an earlier
                            // checkpoint to name
    while (!found.empty()) {
        const size_t end = found.find('\n');
        const std::string folder = found.substr(0, end);
        found = end == std::string::npos ? "" : found.substr(end + 1);
        const runtime::Topology& topology = collectives.topology();
        const int readers = request.via_first ? topology.node_sizes.front() : topology.world_size();
        Opened opened = open_and_verify(tree, collectives, folder, readers);
        const bool whole = opened.fault.empty();
        if (offering && whole)
            fail(ExitCode::kCheckpoint,
                 "{}; the newest intact checkpoint before it is {}: resume with --resume={}",
                 damage, folder, folder);
        if (whole) {
            if (first) storage::CheckpointReader::mark_verified(tree, *opened.reader);
            if (first && !request.restarted && damage.empty())
                tell_other_latest(tree, path, folder);
            if (!request.via_first) return std::move(opened.reader);
            const std::string copy = resume_copy(request.output, topology.node_rank);
            if (topology.node_rank > 0 && topology.local_rank == 0) tree.remove_folder(copy);
            runtime::bring_to_all(tree, collectives, folder, copy);
            if (topology.node_rank == 0) return std::move(opened.reader);
            return std::make_unique<storage::CheckpointReader>(tree, copy);
        }
        if (first) log_warn("checkpoint", "skipping {}: {}", folder, opened.fault);
        if (damage.empty()) damage = opened.fault;
        if (named && path == request.from && !offering) {
            offering = true;
            if (first) folders = earlier_ones(tree, folder);
            found = list();
        }
    }
    if (!damage.empty())
        fail(ExitCode::kCheckpoint,
             "{}; no checkpoint in {} is intact: remove them, or start again without --resume",
             damage, path);
    if (named && path == request.from)
        fail(ExitCode::kCheckpoint,
             "{}: there is no complete checkpoint; `dslaunch ckpt ls {}` shows what is there", path,
             shell_word(path));
    if (request.via_first && own_first) require_none_elsewhere(tree, collectives, request.output);
    if (first) tell_nothing_to_resume(tree, request, path);
    return nullptr;
}

void require_shared_folder(storage::FileTree& tree, runtime::Collectives& collectives,
                           const std::string& output) {
    const runtime::Topology& topology = collectives.topology();
    if (topology.node_count() == 1) return;
    const std::string folder = output + "/checkpoints";
    std::string path;
    if (topology.rank() == 0) {
        std::random_device random;
        path = fmt::format("{}/.shared-{:08x}{:08x}", folder, random(), random());
        tree.make_folders(folder);
        const auto sink = tree.create(path, Bytes{0});
        sink->sync();
    }
    path = agreed(collectives, path);
    bool seen = topology.local_rank != 0;
    const auto limit = std::chrono::steady_clock::now() + kSharedFolderWait;
    while (!seen) {
        if (const auto entries = tree.list(folder))
            for (const storage::FolderEntry& entry : *entries)
                seen = seen || folder + "/" + entry.name == path;
        if (seen || std::chrono::steady_clock::now() > limit) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::vector<std::string> blind =
        collectives.all_gather(seen ? std::string() : launch::machine_name());
    if (topology.rank() == 0) tree.remove_file(path);
    const auto host = std::ranges::find_if(blind, [](const auto& name) { return !name.empty(); });
    if (host == blind.end()) return;
    // No rank may fail before the file is removed: when one rank fails, all ranks are ended.
    static_cast<void>(collectives.all_gather({}));
    fail(ExitCode::kSetup,
         "rank {} on host {} does not see what rank 0 writes to {}. Checkpoints need a file system "
         "that all hosts share: name a folder on a shared file system with --output, or save all "
         "checkpoints on rank 0's disk with --save-via rank0",
         host - blind.begin(), *host, folder);
}

}  // namespace dslaunch::job
