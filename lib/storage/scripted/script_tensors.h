// The tensors of a pickle of torch.jit.save, and whether each lies in its record. Part of
// script_archive.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::storage {

// The bytes of the record of a storage, by the storage's key; nothing: there is none.
using RecordBytes = std::function<std::optional<int64_t>(std::string_view)>;

// Checks each storage against its record, and each tensor against its storage. Returns the bytes
// that all of them would take apart from each other. Throws Error{kInput} that begins with WHERE,
// the archive and the pickle.
[[nodiscard]] int64_t check_script_tensors(const std::string& where, const Pickle& pickle,
                                           const RecordBytes& record_bytes);

}  // namespace dslaunch::storage
