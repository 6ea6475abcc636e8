#include "storage/checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"
#include "base/text_bytes.h"
#include "storage/checkpoint/manifest.h"
#include "storage/files/file_names.h"
#include "storage/named/step_folder.h"

namespace dslaunch::storage {
namespace {

constexpr std::chrono::milliseconds kClaimInterval{100};
constexpr size_t kHolderBytesMax = 500;

constexpr int64_t kAnyStep = -1;  // means the step in the manifest, whatever it is

// Returns an empty text if ENTRIES contain every file of CHECKPOINT with its right length, else a
// text about the first file that is missing or has another length.
std::string missing(const Checkpoint& checkpoint, const std::vector<FolderEntry>& entries) {
    std::map<std::string_view, const FolderEntry*> by_name;
    for (const FolderEntry& entry : entries) by_name[entry.name] = &entry;
    for (const CheckpointFile& file : checkpoint.files) {
        const auto found = by_name.find(file.name);
        if (found == by_name.end() || found->second->is_folder)
            return fmt::format("{} is missing", file.name);
        if (found->second->bytes.value != file.bytes)
            return fmt::format("{} has {} bytes instead of {}", file.name,
                               found->second->bytes.value, file.bytes);
    }
    return "";
}

void look_into(const FileTree& tree, StoredCheckpoint& stored) {
    const auto entries = tree.list(stored.folder);
    if (!entries) fail(ExitCode::kCheckpoint, "the folder was removed");
    const auto has = [&](std::string_view name) {
        return std::any_of(entries->begin(), entries->end(), [&](const FolderEntry& entry) {
            return entry.name == name && !entry.is_folder;
        });
    };
    for (const FolderEntry& entry : *entries) stored.bytes += entry.bytes;
    if (!has(kManifestName)) fail(ExitCode::kCheckpoint, "{} is missing", kManifestName);
    const std::string path = fmt::format("{}/{}", stored.folder, kManifestName);
    const std::string text(text_in(tree.open(path)->bytes()));
    const Checkpoint checkpoint = parse_manifest(path, text);
    if (stored.step == kAnyStep) stored.step = checkpoint.training.step;
    if (checkpoint.training.step != stored.step)
        fail(ExitCode::kCheckpoint, "its manifest belongs to step {}", checkpoint.training.step);
    stored.launch = checkpoint.launch;
    stored.fault = missing(checkpoint, *entries);
    stored.is_complete = stored.fault.empty();
    stored.is_finite = stored.is_complete && checkpoint.is_finite();
    const EvalRecord& evals = checkpoint.training.evals;
    if (evals.metric && evals.step == stored.step) {
        stored.evaluated = evals;
        stored.judged_by = fmt::format("{} {} {}", eval_metric_name(*evals.metric),
                                       checkpoint.data.held_out, checkpoint.data.samples);
    }
    if (!stored.is_complete || !has(kVerifiedName)) return;
    const auto mark = tree.open(fmt::format("{}/{}", stored.folder, kVerifiedName));
    stored.is_verified = text_in(mark->bytes()) == verified_mark(text);
}

StoredCheckpoint look_at(const FileTree& tree, const std::string& folder, int64_t step) {
    StoredCheckpoint stored;
    stored.folder = folder;
    stored.step = step;
    try {
        look_into(tree, stored);
    } catch (const Error& error) {
        stored.fault = error.what();
    }
    return stored;
}

}  // namespace

StoredCheckpoint checkpoint_in(const FileTree& tree, const std::string& folder) {
    return look_at(tree, folder, kAnyStep);
}

namespace {

// Writes a small file and makes its content durable.
void write_text(FileTree& tree, const std::string& path, std::string_view text) {
    const auto sink = tree.create(path, Bytes{static_cast<int64_t>(text.size())});
    sink->write(std::as_bytes(std::span(text)));
    sink->sync();
}

void remove_or_warn(FileTree& tree, const FolderEntry& entry, const std::string& path) noexcept {
    try {
        entry.is_folder ? tree.remove_folder(path) : tree.remove_file(path);
    } catch (const std::exception& error) {
        log_warn("checkpoint", "{} cannot be removed: {}", printable(path), error.what());
    }
}

std::string unfinished_name(int64_t step, const std::string& id) {
    return fmt::format("{}.tmp-{}", step_folder_name(step), id);
}

// Returns the line that the owner of the lock at PATH wrote into the file.
std::string holder_of(const FileTree& tree, const std::string& path) {
    try {
        const auto view = tree.open(path);
        const std::string_view text = text_in(view->bytes());
        const std::string_view line = text.substr(0, std::min(text.find('\n'), kHolderBytesMax));
        if (!line.empty()) return printable(line);
    } catch (const Error&) {
        // The owner has just ended, or an older version of dslaunch owns the lock and left the file
        // empty.
    }
    return "a run that did not write its name";
}

}  // namespace

std::unique_ptr<FileLock> claim_checkpoints(FileTree& tree, const std::string& root,
                                            const CheckpointClaim& claim) {
    tree.make_folders(root);
    // A crashed run may have made the root without syncing the folder above it.
    tree.sync_folder(folder_of(root));
    const std::string path = root + "/.lock";
    const auto deadline = std::chrono::steady_clock::now() + claim.wait_max;
    bool told = false;
    for (;;) {
        if (auto lock = tree.lock(path, claim.owner + "\n")) return lock;
        const std::string holder = holder_of(tree, path);
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left <= left.zero()) {
            fail(ExitCode::kCheckpoint,
                 "{}: another run is saving its checkpoints there: {}; wait until it ends, stop "
                 "it, or give another --output",
                 printable(root), holder);
        }
        if (!std::exchange(told, true) && claim.told) {
            claim.told(fmt::format("{} is locked by {}; waiting up to {} s until it ends",
                                   printable(path), holder,
                                   std::chrono::ceil<std::chrono::seconds>(left).count()));
        }
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kClaimInterval));
    }
}

CheckpointStore::CheckpointStore(FileTree& tree, std::string root, Retention keeps,
                                 std::unique_ptr<FileLock> claim)
    : tree_(tree), root_(std::move(root)), keeps_(keeps), claim_(std::move(claim)) {
    while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
}

// Removes unfinished saves. No other run writes here now, so they are left over from runs that have
// ended.
void CheckpointStore::remove_leftovers() {
    const auto entries = tree_.list(root_);
    if (!entries) return;
    std::set<int64_t> complete;
    for (const StoredCheckpoint& stored : list())
        if (stored.is_complete && stored.folder == fmt::format("{}/step-{}", root_, stored.step))
            complete.insert(stored.step);
    for (const FolderEntry& entry : *entries) {
        const auto parsed = parse_step_folder(entry.name);
        const std::string path = fmt::format("{}/{}", root_, entry.name);
        if (parsed && parsed->kind == StepFolderKind::kReplaced && !complete.count(parsed->step) &&
            look_at(tree_, path, parsed->step).is_complete) {
            // Gives the old checkpoint its name back, because the save that was to replace it was
            // never completed.
            const std::string place = fmt::format("{}/step-{}", root_, parsed->step);
            if (tree_.list(place)) tree_.remove_folder(place);
            tree_.rename(path, place);
            tree_.sync_folder(root_);
            complete.insert(parsed->step);
        } else if ((parsed && parsed->kind != StepFolderKind::kCheckpoint) ||
                   entry.name.starts_with("latest.tmp-") || entry.name.starts_with("best.tmp-")) {
            remove_or_warn(tree_, entry, path);
        }
    }
}

std::string CheckpointStore::begin(int64_t step, const std::string& id, Bytes need) {
    DSL_CHECK(!id.empty() && std::all_of(id.begin(), id.end(),
                                         [](char c) {
                                             return (c >= '0' && c <= '9') ||
                                                    (c >= 'a' && c <= 'z') || c == '-';
                                         }),
              "'{}' is not a valid id of a checkpoint: only a to z, 0 to 9 and `-` are allowed",
              id);
    if (!claim_) claim_ = claim_checkpoints(tree_, root_);
    remove_leftovers();
    const Bytes free = tree_.free_room(root_);
    if (free < need)
        fail(ExitCode::kDisk,
             "{}: the checkpoint of step {} needs {}, but only {} are free there; free some space, "
             "keep fewer checkpoints, or give an --output on another disk",
             printable(root_), step, to_text(need), to_text(free));
    std::string folder = fmt::format("{}/{}", root_, unfinished_name(step, id));
    tree_.make_folder(folder);
    return folder;
}

void CheckpointStore::put_in_place(const std::string& from, const std::string& to,
                                   const std::string& id) {
    if (!tree_.list(to)) {
        tree_.rename(from, to);
        tree_.sync_folder(root_);
        return;
    }
    if (tree_.exchange(from, to)) {
        tree_.sync_folder(root_);
        remove_or_warn(tree_, {"", true, {}}, from);
        return;
    }
    // At every moment a complete checkpoint of this step exists as TO or as TO.old-ID. list() and
    // begin() know both names.
    const std::string old = fmt::format("{}.old-{}", to, id);
    tree_.rename(to, old);
    tree_.sync_folder(root_);
    tree_.rename(from, to);
    tree_.sync_folder(root_);
    remove_or_warn(tree_, {"", true, {}}, old);
}

// Renames the checkpoints of later steps instead of removing them, so that nothing is lost. Without
// this, list() would take them for the newest checkpoints. list() also reads replaced checkpoints
// (.old-ID), so these are renamed too.
void CheckpointStore::set_aside_later(int64_t step, const std::string& id) {
    bool moved = false;
    for (const FolderEntry& entry : tree_.list(root_).value_or(std::vector<FolderEntry>{})) {
        const auto parsed = parse_step_folder(entry.name);
        if (!parsed || !entry.is_folder || parsed->kind == StepFolderKind::kUnfinished ||
            parsed->step <= step)
            continue;
        const std::string aside = fmt::format("abandoned-{}-{}", id, entry.name);
        tree_.rename(fmt::format("{}/{}", root_, entry.name), fmt::format("{}/{}", root_, aside));
        log_warn("checkpoint",
                 "{}/{} is from a run that this one does not continue: it was renamed to {}",
                 printable(root_), entry.name, aside);
        moved = true;
    }
    if (moved) tree_.sync_folder(root_);
}

// Writes `latest` or `best`, a hint for people and scripts. list() decides which checkpoints are
// the newest and the best, and does not read these files.
void CheckpointStore::point(const std::string& name, int64_t step, const std::string& id) {
    const std::string temporary = fmt::format("{}/{}.tmp-{}", root_, name, id);
    write_text(tree_, temporary, step_folder_name(step) + "\n");
    tree_.rename(temporary, fmt::format("{}/{}", root_, name));
    tree_.sync_folder(root_);
}

void CheckpointStore::point_best(const std::vector<StoredCheckpoint>& all, const std::string& id) {
    const auto best = std::ranges::find_if(all, &StoredCheckpoint::is_best);
    if (best != all.end()) return point("best", best->step, id);
    const auto entries = tree_.list(root_).value_or(std::vector<FolderEntry>{});
    if (std::ranges::find(entries, "best", &FolderEntry::name) != entries.end())
        tree_.remove_file(root_ + "/best");
}

void CheckpointStore::remove_old(const std::vector<StoredCheckpoint>& all,
                                 const std::string& newest) {
    for (const std::string& folder : checkpoints_to_remove(all, keeps_)) {
        if (folder == newest) continue;
        // A folder that is only partly removed must not look like a damaged checkpoint.
        const std::string gone = fmt::format("{}.tmp-removed", folder);
        tree_.rename(folder, gone);
        tree_.remove_folder(gone);
    }
}

// Makes `best` name the best checkpoint, and removes old checkpoints except NEWEST. Called after
// save ID has made NEWEST.
void CheckpointStore::tidy_up(const std::string& newest, const std::string& id) noexcept {
    const char* what = "read the checkpoints";
    try {
        const std::vector<StoredCheckpoint> all = list();
        what = "write `best`";
        if (keeps_.keeps_best) point_best(all, id);
        what = "remove an old checkpoint";
        remove_old(all, newest);
    } catch (const std::exception& error) {
        log_warn("checkpoint", "{}: cannot {}: {}", printable(root_), what, error.what());
    }
}

std::string CheckpointStore::commit(const Checkpoint& checkpoint) {
    const int64_t step = checkpoint.training.step;
    const std::string from = fmt::format("{}/{}", root_, unfinished_name(step, checkpoint.id));
    const std::string to = fmt::format("{}/{}", root_, step_folder_name(step));
    const std::string text = manifest_text(checkpoint);
    static_cast<void>(parse_manifest(fmt::format("{}/{}", from, kManifestName), text));
    const auto entries = tree_.list(from);
    const std::string fault = entries ? missing(checkpoint, *entries) : "the folder is missing";
    if (!fault.empty())
        fail(ExitCode::kCheckpoint,
             "{}: {}: all ranks must write to one file system that rank 0 can also see; was the "
             "folder removed, or is it a different disk on each host?",
             printable(from), fault);
    write_text(tree_, fmt::format("{}/{}", from, kManifestName), text);
    tree_.sync_folder(from);
    set_aside_later(step, checkpoint.id);
    put_in_place(from, to, checkpoint.id);
    point("latest", step, checkpoint.id);
    tidy_up(to, checkpoint.id);
    return to;
}

void CheckpointStore::abandon(int64_t step, const std::string& id) noexcept {
    try {
        for (const FolderEntry& entry : tree_.list(root_).value_or(std::vector<FolderEntry>{}))
            if (entry.name == unfinished_name(step, id) || entry.name == "latest.tmp-" + id ||
                entry.name == "best.tmp-" + id)
                remove_or_warn(tree_, entry, fmt::format("{}/{}", root_, entry.name));
    } catch (const std::exception& error) {
        log_warn("checkpoint", "{}: {}", printable(root_), error.what());
    }
}

namespace {

constexpr std::string_view kCheckpointsFolder = "checkpoints";

// Returns true for names of weights and adapters, as a run and other tools write them.
bool is_weights(std::string_view name) {
    return name == kAdapterFolder || name == "model.pt" || name.starts_with("pytorch_model") ||
           (name.starts_with("model") && name.find(".safetensors") != name.npos);
}

// Returns true if dslaunch wrote OUTPUT's run.json.
bool has_own_record(const FileTree& tree, const std::string& output) {
    std::unique_ptr<FileView> bytes;
    try {
        bytes = tree.open(output + "/run.json");
    } catch (const Error&) {
        return false;  // a broken link, or a file that this user may not read
    }
    const auto seen = bytes->bytes();
    const std::string_view text(reinterpret_cast<const char*>(seen.data()), seen.size());
    // The launcher's file begins with the first of these texts. A worker that another launcher
    // started writes the second.
    return text.empty() || text.starts_with("{\"dslaunch\"") || text.starts_with("{\"run\"");
}

// Returns true if FOLDER contains checkpoints of a run; false also if FOLDER cannot be listed.
bool holds_checkpoints(const FileTree& tree, const std::string& folder) {
    try {
        return std::ranges::any_of(tree.list(folder).value_or(std::vector<FolderEntry>{}),
                                   [](const FolderEntry& entry) {
                                       return entry.is_folder && parse_step_folder(entry.name);
                                   });
    } catch (const Error&) {
        return false;
    }
}

// Refuses OUTPUT if it is inside a run. If RESUMES, also refuses OUTPUT if it has no checkpoints,
// but its subfolders have checkpoints.
void require_run_folder(const FileTree& tree, const std::string& output, bool resumes) {
    namespace fs = std::filesystem;
    const auto refuse = [&](const char* what, const fs::path& run) {
        fail(ExitCode::kCheckpoint, "{} is {} of a run, not the run's folder: use --output {}",
             printable(output), what, shell_word(run.string()));
    };
    fs::path path = fs::path(output).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    const auto entries = tree.list(output).value_or(std::vector<FolderEntry>{});
    const auto has = [&](std::string_view name) {
        return std::ranges::find(entries, name, &FolderEntry::name) != entries.end();
    };
    if (parse_step_folder(path.filename().string()) && has(kManifestName))
        refuse("a checkpoint", path.parent_path().parent_path());
    if (path.filename() == kCheckpointsFolder)
        for (const FolderEntry& entry : entries)
            if (entry.is_folder && parse_step_folder(entry.name))
                refuse("the folder of checkpoints", path.parent_path());
    if (!resumes || has(kCheckpointsFolder)) return;
    std::vector<std::string> runs;
    for (const FolderEntry& entry : entries)
        if (entry.is_folder && holds_checkpoints(tree, fmt::format("{}/{}/{}", output, entry.name,
                                                                   kCheckpointsFolder)))
            runs.push_back(shell_word((path / entry.name).string()));
    if (runs.empty()) return;
    std::ranges::sort(runs);
    const size_t count = runs.size();
    if (count > 3) runs.resize(3);
    fail(ExitCode::kCheckpoint,
         "{} has no checkpoints, but contains {}: give one of them with --output: {}{}",
         printable(output), counted(static_cast<int64_t>(count), "run"), join(runs, ", "),
         count > 3 ? ", ..." : "");
}

}  // namespace

void require_unused_output(FileTree& tree, const std::string& output, bool resumes,
                           std::span<const std::string> copied) {
    require_run_folder(tree, output, resumes);
    for (const StoredCheckpoint& stored :
         CheckpointStore(tree, fmt::format("{}/{}", output, kCheckpointsFolder), {}).list()) {
        if (!stored.is_complete) continue;
        if (resumes) return;
        fail(ExitCode::kCheckpoint,
             "{} has checkpoints of an earlier run, the newest of step {}: continue from it with "
             "--resume, or give another folder with --output",
             output, stored.step);
    }
    const auto is_copied = [&](const std::string& name) {
        return std::ranges::any_of(
            copied, [&](const std::string& one) { return one.substr(0, one.find('/')) == name; });
    };
    std::vector<std::string> found;
    for (const FolderEntry& entry : tree.list(output).value_or(std::vector<FolderEntry>{})) {
        if (resumes && entry.name == "metrics.jsonl") return;
        if (is_weights(entry.name) || is_copied(entry.name) ||
            (entry.name == "run.json" && !entry.is_folder && !has_own_record(tree, output)))
            found.push_back(printable(entry.name));
    }
    if (found.empty()) return;
    std::ranges::sort(found);
    fail(ExitCode::kCheckpoint,
         "{}: already contains {}, which the run would replace or which could be mistaken for its "
         "result: give another folder with --output, or move {} away",
         printable(output), join(found, ", "), found.size() > 1 ? "these files" : "this file");
}

std::vector<StoredCheckpoint> CheckpointStore::list() const {
    std::vector<StoredCheckpoint> all, replaced;
    std::set<int64_t> complete;
    for (const FolderEntry& entry : tree_.list(root_).value_or(std::vector<FolderEntry>{})) {
        const auto parsed = parse_step_folder(entry.name);
        if (!parsed || !entry.is_folder || parsed->kind == StepFolderKind::kUnfinished) continue;
        const bool old = parsed->kind == StepFolderKind::kReplaced;
        StoredCheckpoint stored =
            look_at(tree_, fmt::format("{}/{}", root_, entry.name), parsed->step);
        if (stored.is_complete && !old) complete.insert(stored.step);
        (old ? replaced : all).push_back(std::move(stored));
    }
    for (StoredCheckpoint& stored : replaced)
        if (stored.is_complete && !complete.count(stored.step)) all.push_back(std::move(stored));
    std::sort(all.begin(), all.end(), [](const StoredCheckpoint& a, const StoredCheckpoint& b) {
        return std::pair(a.step, a.is_complete) > std::pair(b.step, b.is_complete);
    });
    mark_best(all);
    return all;
}

}  // namespace dslaunch::storage
