// Reads one committed checkpoint: any range of elements of any tensor, whichever files contain it,
// so that a run with other ranks can load it. All methods are const; any thread may call them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// An open checkpoint; its files stay mapped.
class CheckpointReader {
  public:
    // Throws Error{kCheckpoint}, naming FOLDER and the file, if the manifest is missing or damaged,
    // or if files are missing or have other sizes. TREE must outlive the reader.
    CheckpointReader(const FileTree& tree, std::string folder);
    ~CheckpointReader();

    // Return the step folder, and the content of its manifest.
    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }

    // Reads file FILE (an index into checkpoint().files) and compares all of its hashes. Returns an
    // empty text if they match, else a text that names the file, the tensor and the offset.
    [[nodiscard]] std::string verify_file(size_t file) const;
    // Marks the checkpoint as verified (StoredCheckpoint::is_verified). REQUIRES: verify_file()
    // found no fault in any file.
    static void mark_verified(FileTree& tree, const CheckpointReader& reader);

    // Calls USE with the bytes of ELEMENTS of a tensor. STATE selects the tensor's weights (in its
    // dtype) or one of its states (fp32). Hashes are not checked. The calls are in the order of the
    // tensor's memory, and their ranges cover ELEMENTS without gaps.
    using Use = std::function<void(const Range& elements, std::span<const std::byte> bytes)>;
    void for_each(int tensor, int state, const Range& elements, const Use& use) const;

  private:
    const FileTree& tree_;
    std::string folder_;
    std::string mark_;  // the text that marks this checkpoint as verified
    Checkpoint checkpoint_;
    std::vector<std::unique_ptr<FileView>> views_;
    std::vector<std::vector<std::pair<size_t, size_t>>> where_;  // pieces by tensor and state
};

// The checkpoints that a user's path means. The path may be a step folder, a folder that contains
// step folders, or an --output folder with checkpoints/ in it. If it is not a step folder itself,
// the user may append /best or /latest to choose one.
struct CheckpointPlace {
    std::string root;         // the folder of the step folders; empty if step_folder is set
    std::string step_folder;  // the one step folder that the path leads to; empty if root is set
};
// Throws Error{kCheckpoint} naming PATH if it leads to no checkpoint.
[[nodiscard]] CheckpointPlace find_checkpoints(FileTree& tree, const std::string& path);

// Returns a warning if dslaunch chose the checkpoint FOLDER for the user's PATH, but the file
// `latest` beside FOLDER names an older or a missing checkpoint. For an older one, the warning says
// how to choose it with the option OPTION. Returns an empty text in all other cases. In particular,
// there is no warning if PATH itself names FOLDER or the best checkpoint, or if `latest` names a
// newer checkpoint, which dslaunch has skipped because it is not usable.
[[nodiscard]] std::string other_latest_text(const FileTree& tree, const std::string& path,
                                            const std::string& folder, std::string_view option);

}  // namespace dslaunch::storage
