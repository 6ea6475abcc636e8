#include "storage/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"
#include "base/text_bytes.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/manifest.h"
#include "storage/checkpoint/shard_header.h"
#include "storage/named/step_folder.h"

namespace dslaunch::storage {
namespace {

// Opens a file of the checkpoint. Reports a fault of the disk as a fault of the checkpoint.
std::unique_ptr<FileView> open_file(const FileTree& tree, const std::string& folder,
                                    std::string_view name) {
    try {
        return tree.open(fmt::format("{}/{}", folder, name));
    } catch (const Error& error) {
        fail(ExitCode::kCheckpoint, "{}: is not a complete checkpoint: {}", printable(folder),
             error.what());
    }
}

// Returns true if a folder with these ENTRIES is a DeepSpeed checkpoint, or the folder of one step
// in such a checkpoint.
bool is_deepspeed(const std::vector<FolderEntry>& entries) {
    return std::any_of(entries.begin(), entries.end(), [](const FolderEntry& entry) {
        return is_deepspeed_entry(entry.name, entry.is_folder);
    });
}

bool holds(const std::vector<FolderEntry>& entries, std::string_view name, bool folder) {
    return std::any_of(entries.begin(), entries.end(), [&](const FolderEntry& entry) {
        return entry.name == name && entry.is_folder == folder;
    });
}

// Returns true if a folder with these ENTRIES is a universal checkpoint of DeepSpeed, or contains
// universal checkpoints and no others.
bool is_universal(const std::vector<FolderEntry>& entries) {
    return (holds(entries, "zero", true) && is_deepspeed(entries)) ||
           (holds(entries, "latest_universal", false) && !holds(entries, "latest", false));
}

// Returns the entries of FOLDER. Throws Error{kCheckpoint} if FOLDER is a file.
std::optional<std::vector<FolderEntry>> list_of(const FileTree& tree, const std::string& folder) {
    try {
        return tree.list(folder);
    } catch (const Error&) {
        const auto beside = tree.list(folder_of(folder));
        if (!beside || !holds(*beside, folder.substr(folder.rfind('/') + 1), false)) throw;
        fail(ExitCode::kCheckpoint,
             "{}: is a file, but a checkpoint is a folder: give the run's folder, or a step-N "
             "folder in it",
             printable(folder));
    }
}

}  // namespace

CheckpointReader::CheckpointReader(const FileTree& tree, std::string folder)
    : tree_(tree), folder_(std::move(folder)) {
    const auto manifest = open_file(tree_, folder_, kManifestName);
    const std::string_view text = text_in(manifest->bytes());
    checkpoint_ = parse_manifest(fmt::format("{}/{}", folder_, kManifestName), text);
    mark_ = verified_mark(text);
    const size_t kinds = checkpoint_.states.size() + 1;
    where_.resize(checkpoint_.tensors.size() * kinds);
    for (size_t i = 0; i < checkpoint_.files.size(); ++i) {
        const CheckpointFile& file = checkpoint_.files[i];
        views_.push_back(open_file(tree_, folder_, file.name));
        if (std::ssize(views_[i]->bytes()) != file.bytes)
            fail(ExitCode::kCheckpoint,
                 "{}/{}: it has {} bytes instead of {}: it was cut off or changed",
                 printable(folder_), file.name, views_[i]->bytes().size(), file.bytes);
        for (size_t j = 0; j < file.pieces.size(); ++j) {
            const CheckpointPiece& piece = file.pieces[j].piece;
            if (piece.elements.numel > 0)
                where_[static_cast<size_t>(piece.tensor) * kinds +
                       static_cast<size_t>(piece.state + 1)]
                    .emplace_back(i, j);
        }
    }
    const auto begin = [&](const std::pair<size_t, size_t>& place) {
        return checkpoint_.files[place.first].pieces[place.second].piece.elements.begin;
    };
    for (auto& places : where_)
        std::sort(places.begin(), places.end(),
                  [&](const auto& a, const auto& b) { return begin(a) < begin(b); });
}

CheckpointReader::~CheckpointReader() = default;

std::string CheckpointReader::verify_file(size_t index) const {
    const CheckpointFile& file = checkpoint_.files.at(index);
    const std::span<const std::byte> bytes = views_[index]->bytes();
    const int64_t data = file.pieces.empty() ? file.bytes : file.pieces.front().offset_bytes;
    if (hash_of(text_in(bytes.first(static_cast<size_t>(data)))) != file.header_hash)
        return fmt::format(
            "{}/{}: its header differs from what was written: the file is damaged, or belongs to "
            "another checkpoint",
            printable(folder_), file.name);
    for (const WrittenPiece& written : file.pieces) {
        const CheckpointPiece& piece = written.piece;
        const auto length = static_cast<size_t>(piece_bytes(checkpoint_, piece));
        const auto part = bytes.subspan(static_cast<size_t>(written.offset_bytes), length);
        const bool right = hash_of(text_in(part)) == written.hash;
        views_[index]->let_go(part);
        if (right) continue;
        const std::string& name = checkpoint_.tensors[piece.tensor].name;
        const std::string state =
            piece.state == kWeights ? "" : fmt::format(".{}", checkpoint_.states[piece.state]);
        return fmt::format(
            "{}/{}: tensor '{}{}', elements {} to {}, {} bytes at offset {}: they differ from what "
            "was written",
            printable(folder_), file.name, printable(name), state, piece.elements.begin,
            piece.elements.end(), length, written.offset_bytes);
    }
    return "";
}

void CheckpointReader::mark_verified(FileTree& tree, const CheckpointReader& reader) {
    const std::string path = fmt::format("{}/{}", reader.folder_, kVerifiedName);
    const auto entries = tree.list(reader.folder_);
    if (entries && holds(*entries, kVerifiedName, false)) {
        if (text_in(tree.open(path)->bytes()) == reader.mark_) return;
        tree.remove_file(path);
    }
    const auto sink = tree.create(path, Bytes{std::ssize(reader.mark_)});
    sink->write(std::as_bytes(std::span(reader.mark_)));
    sink->sync();
    tree.sync_folder(reader.folder_);
}

void CheckpointReader::for_each(int tensor, int state, const Range& elements,
                                const Use& use) const {
    const size_t kinds = checkpoint_.states.size() + 1;
    const auto& places =
        where_.at(static_cast<size_t>(tensor) * kinds + static_cast<size_t>(state + 1));
    const auto piece_at = [&](const std::pair<size_t, size_t>& place) -> const WrittenPiece& {
        return checkpoint_.files[place.first].pieces[place.second];
    };
    auto at = std::partition_point(places.begin(), places.end(), [&](const auto& place) {
        return piece_at(place).piece.elements.end() <= elements.begin;
    });
    int64_t next = elements.begin;
    for (; at != places.end() && next < elements.end(); ++at) {
        const WrittenPiece& written = piece_at(*at);
        const Range part = intersect(written.piece.elements, elements);
        const int64_t element = dtype_bytes(piece_dtype(checkpoint_, written.piece));
        const int64_t offset =
            written.offset_bytes + (part.begin - written.piece.elements.begin) * element;
        const auto bytes = views_[at->first]->bytes().subspan(
            static_cast<size_t>(offset), static_cast<size_t>(part.numel * element));
        use(part, bytes);
        views_[at->first]->let_go(bytes);
        next = part.end();
    }
    DSL_CHECK(next >= elements.end(),
              "tensor {} state {}: the pieces end at element {}, but elements up to {} are needed",
              tensor, state, next, elements.end());
}

namespace {

// Returns the best checkpoint of a run if FOLDER is RUN/best, and the newest usable one if FOLDER
// is RUN/latest. Returns an empty text if FOLDER has another name, or is a real folder.
std::string pointed_to(FileTree& tree, const std::string& folder) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    const bool wants_best = name == "best";
    if (!wants_best && name != "latest") return "";
    const std::string above = folder_of(folder);
    const auto beside = tree.list(above);
    const auto is_step = [](const FolderEntry& entry) {
        return entry.is_folder && parse_step_folder(entry.name);
    };
    if (!beside || holds(*beside, name, true) ||
        (!holds(*beside, "checkpoints", true) && !std::ranges::any_of(*beside, is_step)))
        return "";
    const CheckpointPlace place = find_checkpoints(tree, above);
    for (const StoredCheckpoint& one : CheckpointStore(tree, place.root, {}).list())
        if (wants_best ? one.is_best : one.is_complete && one.is_finite) return one.folder;
    if (!wants_best)
        fail(ExitCode::kCheckpoint, "{}: no checkpoint in {} is complete and finite",
             printable(folder), printable(place.root));
    fail(ExitCode::kCheckpoint,
         "{}: none of the checkpoints in {} was saved after an evaluation of its step, so none is "
         "known to be the best: train with --save-best, which keeps the best one; `dslaunch ckpt "
         "ls {}` lists what is there",
         printable(folder), printable(place.root), printable(above));
}

// Returns the present path of the missing checkpoint FOLDER. A run that continued from an earlier
// step may have renamed it, for example from step-8 to abandoned-ID-step-8. Returns an empty text
// if there is no such folder.
std::string set_aside(FileTree& tree, const std::string& folder) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    if (!parse_step_folder(name)) return "";
    const std::string above = folder_of(folder);
    const auto beside = tree.list(above);
    if (!beside) return "";
    for (const FolderEntry& entry : *beside)
        if (entry.name.starts_with("abandoned-") && entry.name.ends_with("-" + name))
            return fmt::format("{}/{}", above, entry.name);
    return "";
}

}  // namespace

CheckpointPlace find_checkpoints(FileTree& tree, const std::string& path) {
    std::string folder = path;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (std::string pointed = pointed_to(tree, folder); !pointed.empty())
        return {"", std::move(pointed)};
    const auto entries = list_of(tree, folder);
    if (const std::string aside = entries ? "" : set_aside(tree, folder); !aside.empty())
        fail(ExitCode::kCheckpoint,
             "{}: was renamed to {} when the run was continued from an earlier step; give that "
             "folder",
             printable(path), printable(aside));
    if (!entries)
        fail(ExitCode::kCheckpoint,
             "{}: no such folder; give an --output folder, its checkpoints folder, or one step "
             "folder in it{}",
             printable(path),
             parse_step_folder(folder) ? ", such as RUN/checkpoints/" + printable(folder) : "");
    const auto own = parse_step_folder(folder.substr(folder.rfind('/') + 1));
    if (own || holds(*entries, kManifestName, false)) return {"", folder};
    const bool root = std::any_of(entries->begin(), entries->end(), [](const FolderEntry& entry) {
        return entry.is_folder && parse_step_folder(entry.name);
    });
    if (!root && holds(*entries, "checkpoints", true)) return {folder + "/checkpoints", ""};
    if (!root)
        fail(ExitCode::kCheckpoint,
             "{}: has no checkpoint: it contains neither {} nor step-N folders nor checkpoints/{}",
             printable(path), kManifestName,
             is_universal(*entries) || is_deepspeed(*entries)
                 ? fmt::format("; it is a {} checkpoint: convert it with `dslaunch ckpt import {} "
                               "NEW`",
                               is_universal(*entries) ? "universal DeepSpeed" : "DeepSpeed",
                               shell_word(path))
                 : std::string("; give the --output folder of a run"));
    return {folder, ""};
}

std::string other_latest_text(const FileTree& tree, const std::string& path,
                              const std::string& folder, std::string_view option) {
    constexpr size_t kNameMax = 100;
    std::string named_path = path;
    while (named_path.size() > 1 && named_path.back() == '/') named_path.pop_back();
    const std::string root = folder_of(folder), chosen = folder.substr(folder.rfind('/') + 1);
    const auto entries = tree.list(root);
    if (named_path == folder || named_path.ends_with("/best") || !entries ||
        !holds(*entries, "latest", false))
        return "";
    const std::string file = root + "/latest";
    std::string named;
    try {
        const std::unique_ptr<FileView> view = tree.open(file);
        const std::string_view text = trim(text_in(view->bytes()));
        named = text.substr(0, std::min(text.find_first_of("\r\n"), kNameMax));
    } catch (const Error&) {  // ignores a hint that cannot be read
    }
    if (named.empty() || named == chosen) return "";
    const auto own = parse_step_folder(chosen), other = parse_step_folder(named);
    const bool is_there = holds(*entries, named, true);
    if (is_there && own && other && other->step > own->step) return "";
    return fmt::format(
        "{} names {}{}, but the file is only a hint: {} is used, the newest complete checkpoint{}",
        printable(file), printable(named), is_there ? "" : ", which does not exist",
        printable(folder),
        is_there ? fmt::format("; to use {0}, give {1}{2}/{0}", printable(named), option,
                               printable(root))
                 : "");
}

}  // namespace dslaunch::storage
