// Makes a checkpoint of ours from other programs' files: a DeepSpeed checkpoint, or the weights of
// a .safetensors file or Hugging Face folder. Nothing in the source is executed:
// restricted_unpickler.h reads pickles. Sources are mapped and copied in pieces of a few MiB, so
// memory does not grow with the model. One thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::storage {

enum class ForeignFormat : uint8_t {
    kDeepSpeed,   // a folder with `latest`, or a tag's (…/global_stepN)
    kSafetensors  // file, folder with model.safetensors or with model.safetensors.index.json
};
// Returns "deepspeed" or "safetensors".
[[nodiscard]] std::string_view foreign_format_name(ForeignFormat format);

// Returns the format of the files at PATH. Throws Error{kInput} naming PATH and what was looked
// for; for a pickled state_dict (pytorch_model.bin) it also says how to convert it.
[[nodiscard]] ForeignFormat detect_foreign_format(const std::string& path);

// Changes names of the source into names of the module that will train.
struct NameMapping {
    std::string strip;  // off the front; every parameter and alias must have it, others are left
    std::string add;    // before what is left
};

struct ImportOptions {
    std::string source;  // see ForeignFormat
    std::string tag;     // DeepSpeed: the folder of the step; empty: the one that `latest` names
    NameMapping names;
    std::string root;  // the folder of step folders, as CheckpointStore's; made if it is missing
    std::vector<std::string> frozen = {};  // DeepSpeedSource's
};

struct ImportReport {
    ForeignFormat format = ForeignFormat::kDeepSpeed;
    std::string writer;  // "DeepSpeed 0.19.8, ZeRO stage 2, 8 ranks"; "safetensors, 2 files"
    std::string folder;  // ROOT/step-N, committed
    int64_t step = 0;    // 0: weights alone
    int64_t tensor_count = 0;
    int64_t numel = 0;        // their weights' elements
    bool has_states = false;  // the optimizer's states were there
    bool finite = true;
    Bytes bytes;  // written
    // The notes tell a reader which data of the source a checkpoint of ours does not keep, and
    // which values were derived. One sentence each.
    std::vector<std::string> notes;
};

// Imports a source as a committed checkpoint with one rank's files. All floating tensors of 16 bits
// become fp32 without loss; others keep their dtype. Trained ones are kTrained with `updates` from
// the optimizer's own step. Weights alone are kTrained too (integers and bools kBuffer), with no
// states, step 0. A checkpoint of the same step in ROOT is replaced. Throws Error{kInput} naming
// file and reason for a source that is damaged, incomplete or refused; Error{kDisk} if writing
// fails. Then nothing is committed. TREE is where ROOT lies; the source is read from this machine's
// file system.
[[nodiscard]] ImportReport import_checkpoint(FileTree& tree, const ImportOptions& options);

}  // namespace dslaunch::storage
