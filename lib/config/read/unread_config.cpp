#include "config/read/unread_config.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"
#include "config/read/train_config.h"

namespace dslaunch::config {

std::string unread_config_text(std::string_view packed, const std::string& name,
                               const std::string& beside) {
    try {
        if (trim(read_file(beside, kConfigBytesMax)) == trim(packed)) return "";
    } catch (const Error&) {
        return "";  // there is no such file
    }
    const std::string path = path_from_here(beside);
    return fmt::format(
        "{}, the config packed in the model, is used; {} beside it differs and is not read "
        "(--config {} uses it)",
        printable(name), printable(path), shell_word(path));
}

}  // namespace dslaunch::config
