// The bytes between hosts, as a rank counts them.
#pragma once

#include "base/bytes.h"

namespace dslaunch::runtime {

// The payload that this rank has sent to and received from other hosts, or as a device from others.
struct Traffic {
    Bytes sent;
    Bytes received;
};

}  // namespace dslaunch::runtime
