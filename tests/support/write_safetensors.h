// Writes a .safetensors file from tensors in memory.
#pragma once

#include <map>
#include <span>
#include <string>

#include "storage/files/safetensors.h"

namespace dslaunch::test {

// Writes ENTRIES in their order. REQUIRES: the number of bytes fits shape and dtype.
inline void write_safetensors(const std::string& path,
                              std::span<const storage::SafetensorsEntry> entries,
                              const std::map<std::string, std::string>& metadata = {}) {
    storage::SafetensorsWriter writer(path, entries, metadata);
    for (size_t i = 0; i < entries.size(); ++i) writer.write(i, entries[i].bytes);
    writer.commit();
}

}  // namespace dslaunch::test
