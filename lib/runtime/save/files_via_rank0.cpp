#include "runtime/save/files_via_rank0.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/message.h"
#include "base/text_bytes.h"

namespace dslaunch::runtime {

namespace {

// The bytes that all ranks together send in one round.
constexpr int64_t kRoundBytes = int64_t{32} << 20;

// The next bytes of a file that a rank sends.
struct FilePart {
    static constexpr const char* kWhat = "a part of a checkpoint's file";
    std::string name;
    int64_t bytes = 0;  // length of the whole file
    std::string block;
};

// The files of a checkpoint's folder: names and bytes.
struct FileList {
    static constexpr const char* kWhat = "files of a checkpoint";
    std::vector<std::pair<std::string, int64_t>> files;
};

// The files that a rank sends, one after the other, one block per round.
class Outgoing {
  public:
    Outgoing(const storage::FileTree& tree, const std::string& folder,
             std::span<const storage::CheckpointFile> files)
        : tree_(tree), folder_(folder), files_(files) {}
    // Returns name, length and next bytes of a file; empty once all is sent.
    std::string next(size_t block_bytes) {
        if (file_ == files_.size()) return "";
        const storage::CheckpointFile& file = files_[file_];
        if (view_ == nullptr) view_ = tree_.open(folder_ + "/" + file.name);
        const std::span<const std::byte> left = view_->bytes().subspan(sent_bytes_);
        const std::span<const std::byte> block = left.first(std::min(left.size(), block_bytes));
        const std::string part =
            encode(FilePart{file.name, file.bytes, std::string(text_in(block))});
        sent_bytes_ += block.size();
        if (block.size() == left.size()) {
            view_.reset();
            sent_bytes_ = 0;
            ++file_;
        }
        return part;
    }

  private:
    const storage::FileTree& tree_;
    std::string folder_;
    std::span<const storage::CheckpointFile> files_;
    size_t file_ = 0;
    size_t sent_bytes_ = 0;
    std::unique_ptr<storage::FileView> view_;
};

// The files that are received from one rank.
class Incoming {
  public:
    void take(storage::FileTree& tree, const std::string& folder, const std::string& message) {
        const auto part = decode<FilePart>(message);
        if (sink_ == nullptr) {
            sink_ = tree.create(folder + "/" + part.name, Bytes{part.bytes});
            left_bytes_ = part.bytes;
        }
        sink_->write(bytes_in(part.block));
        left_bytes_ -= std::ssize(part.block);
        if (left_bytes_ > 0) return;
        sink_->sync();
        sink_.reset();
    }

  private:
    std::unique_ptr<storage::FileSink> sink_;
    int64_t left_bytes_ = 0;
};

}  // namespace

std::string bring_to_first(storage::FileTree& tree, Collectives& collectives,
                           const std::string& folder,
                           std::span<const storage::CheckpointFile> own) {
    const Topology& topology = collectives.topology();
    const bool sends = topology.node_rank > 0;
    const auto block_bytes = static_cast<size_t>(kRoundBytes / topology.world_size());
    Outgoing outgoing(tree, folder, sends ? own : std::span<const storage::CheckpointFile>());
    std::vector<Incoming> incoming(static_cast<size_t>(topology.world_size()));
    std::string failure;
    for (;;) {
        std::string mine;
        try {
            if (failure.empty()) mine = outgoing.next(block_bytes);
        } catch (const Error& error) {
            failure = error.what();
        }
        const std::vector<std::string> all = collectives.all_gather(mine);
        if (std::ranges::all_of(all, [](const std::string& one) { return one.empty(); })) break;
        if (topology.rank() != 0 || !failure.empty()) continue;
        try {
            for (size_t rank = 0; rank < all.size(); ++rank)
                if (!all[rank].empty()) incoming[rank].take(tree, folder, all[rank]);
        } catch (const Error& error) {
            failure = error.what();
        }
    }
    if (topology.rank() == 0 && failure.empty()) tree.sync_folder(folder);
    if (sends && topology.local_rank == 0) tree.remove_folder(folder);
    for (std::string& one : collectives.all_gather(failure))
        if (!one.empty()) return one;
    return "";
}

void bring_to_all(storage::FileTree& tree, Collectives& collectives, const std::string& folder,
                  const std::string& into) {
    const Topology& topology = collectives.topology();
    const bool first = topology.rank() == 0;
    const bool writes = topology.node_rank > 0 && topology.local_rank == 0;
    std::string names;
    if (first) {
        FileList list;
        for (const storage::FolderEntry& entry :
             tree.list(folder).value_or(std::vector<storage::FolderEntry>{}))
            list.files.emplace_back(entry.name, entry.bytes.value);
        names = encode(list);
    }
    const auto listed = decode<FileList>(collectives.all_gather(names).front());
    std::string failure;
    std::vector<std::byte> block;
    if (writes) tree.make_folders(into);
    for (const auto& [name, bytes] : listed.files) {
        std::unique_ptr<storage::FileView> view;
        std::unique_ptr<storage::FileSink> sink;
        if (first) view = tree.open(folder + "/" + name);
        for (int64_t at = 0; at < bytes; at += std::ssize(block)) {
            block.resize(static_cast<size_t>(std::min(kRoundBytes, bytes - at)));
            if (first)
                std::ranges::copy(view->bytes().subspan(static_cast<size_t>(at), block.size()),
                                  block.begin());
            collectives.broadcast(block);
            try {
                if (!writes || !failure.empty()) continue;
                if (sink == nullptr) sink = tree.create(into + "/" + name, Bytes{bytes});
                sink->write(block);
                if (at + std::ssize(block) == bytes) sink->sync();
            } catch (const Error& error) {
                failure = error.what();
            }
        }
    }
    for (const std::string& one : collectives.all_gather(failure))
        if (!one.empty())
            fail(ExitCode::kCheckpoint, "the checkpoint did not reach all hosts: {}", one);
}

}  // namespace dslaunch::runtime
