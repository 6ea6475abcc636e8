#include "storage/checkpoint/file_tree.h"

#include "base/path.h"

namespace dslaunch::storage {

void FileTree::make_folders(const std::string& path) {
    if (path.empty() || path == "/" || list(path)) return;
    const size_t slash = path.find_last_of('/');
    if (slash == path.size() - 1) return make_folders(path.substr(0, slash));
    const std::string parent = folder_of(path);
    make_folders(parent);
    make_folder(path);
    sync_folder(parent);
}

}  // namespace dslaunch::storage
