// The mark of the training data, which a run stores in its checkpoints. A resumed run goes on with
// the same samples in the same order, or reports that it does not. Data path: config -> [here] ->
// job/run/job_saving.h, manifest. Blocks on the disk. No state.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "storage/checkpoint/manifest.h"
#include "storage/files/hash128.h"

namespace dslaunch::job {

// Returns a mark of the contents of PATH: a hash of the size and the bytes. For a file larger than
// 64 MiB, only 256 blocks of 64 KiB are hashed, evenly spread from the first byte to the last. Two
// such files may differ although their marks are equal, but this is unlikely. Names and times are
// not part of the mark, so a copy on another host has the same mark. Throws Error{kInput} if PATH
// cannot be read.
[[nodiscard]] storage::Hash128 file_fingerprint(const std::string& path);

// Returns the mark of the files that DATA names and of the way samples are made from them. It does
// not depend on paths or hosts. Throws Error{kInput} if a file cannot be read.
[[nodiscard]] storage::DataMark data_mark(const config::DataConfig& data);

// Compares the samples of this run, with the data HERE, and the samples of the saved run, with the
// data SAVED. Returns a text about the differences; empty if there are none, or if SAVED is from a
// checkpoint that does not store its data.
[[nodiscard]] std::string data_difference(const storage::DataMark& saved,
                                          const storage::DataMark& here);

}  // namespace dslaunch::job
