// The names of files and folders by which several folders of this library recognize what is at a
// path. Constants; any thread.
#pragma once

#include <string_view>

namespace dslaunch::storage {

// A trained adapter's folder below --output, and the files in an adapter's folder.
inline constexpr const char* kAdapterFolder = "adapter";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// The manifest in a checkpoint's folder.
inline constexpr std::string_view kManifestName = "manifest.json";

}  // namespace dslaunch::storage
