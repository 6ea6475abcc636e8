// One committed checkpoint, to be read at any shape: elements of any tensor, wherever they lie.
// Threads: const, any.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

class CheckpointReader {
  public:
    // Throws Error{kCheckpoint} naming FOLDER and file: no manifest, a damaged one, files missing
    // or of other sizes. TREE must outlive it.
    CheckpointReader(const FileTree& tree, std::string folder);
    ~CheckpointReader();

    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }

    // Reads file FILE (index into checkpoint().files) and compares all of its hashes. Returns an
    // empty text if it is whole, else its fault: tensor, file, offset.
    [[nodiscard]] std::string verify_file(size_t file) const;
    // Marks the checkpoint as verified (StoredCheckpoint::verified). REQUIRES: every file is.
    static void mark_verified(FileTree& tree, const CheckpointReader& reader);

    // Gives USE the ELEMENTS of a tensor's weights (in its dtype) or state (fp32), unverified, as
    // they lie in the files: neighbours that tile ELEMENTS, in the order of the tensor's memory.
    using Use = std::function<void(const Range& elements, std::span<const std::byte> bytes)>;
    void for_each(int tensor, int state, const Range& elements, const Use& use) const;

  private:
    const FileTree& tree_;
    std::string folder_;
    std::string mark_;  // the text that marks this checkpoint as verified
    Checkpoint checkpoint_;
    std::vector<std::unique_ptr<FileView>> views_;
    std::vector<std::vector<std::pair<size_t, size_t>>> where_;  // a sorted list for each tensor
                                                                 // and state
};

// A path given by the user names a step folder, a folder of step folders, or an --output folder
// with checkpoints/ in it. The place is the root of the step folders, or the step folder itself.
struct CheckpointPlace {
    std::string root;         // the folder of the step folders; empty where STEP_FOLDER is given
    std::string step_folder;  // a step folder that was named itself
};
[[nodiscard]] CheckpointPlace find_checkpoints(const FileTree& tree, const std::string& path);

}  // namespace dslaunch::storage
