#include "runtime/save/files_via_rank0.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text/wire.h"
#include "base/text_bytes.h"

namespace dslaunch::runtime {

namespace {

// The bytes of all ranks together in one round.
constexpr int64_t kRoundBytes = int64_t{32} << 20;

// The files that a rank sends, one after the other, a block per round.
class Outgoing {
  public:
    Outgoing(const storage::FileTree& tree, const std::string& folder,
             std::span<const storage::CheckpointFile> files)
        : tree_(tree), folder_(folder), files_(files) {}
    // Returns name, length and next bytes of a file, or nothing once all is sent.
    std::string next(size_t block_bytes) {
        if (file_ == files_.size()) return "";
        const storage::CheckpointFile& file = files_[file_];
        if (view_ == nullptr) view_ = tree_.open(folder_ + "/" + file.name);
        const std::span<const std::byte> left = view_->bytes().subspan(sent_bytes_);
        const std::span<const std::byte> block = left.first(std::min(left.size(), block_bytes));
        WireWriter writer;
        writer.string(file.name).i64(file.bytes).string(text_in(block));
        sent_bytes_ += block.size();
        if (block.size() == left.size()) {
            view_.reset();
            sent_bytes_ = 0;
            ++file_;
        }
        return writer.bytes();
    }

  private:
    const storage::FileTree& tree_;
    std::string folder_;
    std::span<const storage::CheckpointFile> files_;
    size_t file_ = 0;
    size_t sent_bytes_ = 0;
    std::unique_ptr<storage::FileView> view_;
};

// The files that come from one rank.
class Incoming {
  public:
    void take(storage::FileTree& tree, const std::string& folder, const std::string& message) {
        WireReader reader(message, "a part of a checkpoint's file");
        const std::string name = reader.string();
        const int64_t bytes = reader.i64();
        const std::string block = reader.string();
        if (sink_ == nullptr) {
            sink_ = tree.create(folder + "/" + name, Bytes{bytes});
            left_bytes_ = bytes;
        }
        sink_->write(bytes_in(block));
        left_bytes_ -= std::ssize(block);
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
        WireWriter writer;
        const auto entries = tree.list(folder).value_or(std::vector<storage::FolderEntry>{});
        writer.u32(static_cast<uint32_t>(entries.size()));
        for (const storage::FolderEntry& entry : entries)
            writer.string(entry.name).i64(entry.bytes.value);
        names = writer.bytes();
    }
    const std::string listed = collectives.all_gather(names).front();
    WireReader reader(listed, "files of a checkpoint");
    std::string failure;
    std::vector<std::byte> block;
    if (writes) tree.make_folders(into);
    for (uint32_t left = reader.u32(); left > 0; --left) {
        const std::string name = reader.string();
        const int64_t bytes = reader.i64();
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
            fail(ExitCode::kCheckpoint, "the checkpoint did not come to all hosts: {}", one);
}

}  // namespace dslaunch::runtime
