// The mark of the data that a run trains on, in its checkpoints: a resumed run goes on with the
// same samples in the same order, or says that it does not. Data path: config -> [here] ->
// job/run/job_saving.h, manifest. Blocks on the disk. No state.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "storage/checkpoint/manifest.h"
#include "storage/files/hash128.h"

namespace dslaunch::job {

// Returns a mark of a file's contents that is cheap for large files: the hash of the size and the
// bytes of PATH; of a file over 64 MiB, of 256 blocks of 64 KiB, evenly spread from the first to
// the last. Two files with one mark hold the same bytes, as far as looking at a few of them can
// tell. Neither names nor times count, so a copy on another host has the same mark. Throws
// Error{kInput} as MappedFile does.
[[nodiscard]] storage::Hash128 file_fingerprint(const std::string& path);

// Returns the mark of the files that DATA names and of the way samples are made of them. It hangs
// on no path and on no host. Throws Error{kInput} for a file that cannot be read.
[[nodiscard]] storage::DataMark data_mark(const config::DataConfig& data);

// Says how a run with the data HERE would see other samples than the one of SAVED; empty: it would
// not, or SAVED is of a checkpoint that tells nothing.
[[nodiscard]] std::string data_difference(const storage::DataMark& saved,
                                          const storage::DataMark& here);

}  // namespace dslaunch::job
