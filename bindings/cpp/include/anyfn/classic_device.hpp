/*
 * Part of <anyfn/classic.h>: memory and streams of devices in the spelling of TVM 0.8.
 */
#ifndef ANYFN_CLASSIC_DEVICE_HPP_
#define ANYFN_CLASSIC_DEVICE_HPP_

#include <anyfn/classic_function.hpp>

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {

/** Alignment of the memory of tensors, in bytes. */
inline constexpr int kAllocAlignment = 64;

enum DeviceAttrKind : int {
  kExist = 0,
  kMaxThreadsPerBlock = 1,
  kWarpSize = 2,
  kMaxSharedMemoryPerBlock = 3,
  kComputeVersion = 4,
  kDeviceName = 5,
  kMaxClockRate = 6,
  kMultiProcessorCount = 7,
  kMaxThreadDimensions = 8,
  kMaxRegistersPerBlock = 9,
  kGcnArch = 10,
  kApiVersion = 11,
  kDriverVersion = 12
};

/** Memory and streams of devices, through the C API, which serves all devices alike. */
class DeviceAPI {
 public:
  /** Returns the API of a device. `DeviceAPI::Get(device)->..` works without keeping the result. */
  static DeviceAPI Get(Device) { return DeviceAPI(); }
  const DeviceAPI* operator->() const { return this; }

  /** Reads a property of the device. The result is None if the device does not have the property. */
  void GetAttr(Device device, DeviceAttrKind kind, TVMRetValue* rv) const {
    *rv = ::anyfn::detail::run("runtime.GetDeviceAttr", static_cast<int>(device.device_type), device.device_id,
                               static_cast<int>(kind));
  }
  void* AllocDataSpace(Device device, size_t size, size_t alignment, DLDataType type_hint) const {
    void* out = nullptr;
    called(TVMDeviceAllocDataSpace(device, size, alignment, type_hint, &out));
    return out;
  }
  void FreeDataSpace(Device device, void* data) const { called(TVMDeviceFreeDataSpace(device, data)); }
  void CopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle stream) const {
    called(TVMDeviceCopyDataFromTo(from, to, stream));
  }
  /** Allocates temporary memory, which must be freed on the same thread. */
  void* AllocWorkspace(Device device, size_t size, DLDataType type_hint = {kDLUInt, 8, 1}) const {
    void* out = TVMBackendAllocWorkspace(device.device_type, device.device_id, size, type_hint.code, type_hint.bits);
    ICHECK(out != nullptr || size == 0) << "MemoryError: cannot allocate " << size << " bytes";
    return out;
  }
  void FreeWorkspace(Device device, void* data) const {
    (void)TVMBackendFreeWorkspace(device.device_type, device.device_id, data);
  }
  TVMStreamHandle CreateStream(Device device) const {
    TVMStreamHandle out = nullptr;
    called(TVMStreamCreate(device.device_type, device.device_id, &out));
    return out;
  }
  void FreeStream(Device device, TVMStreamHandle stream) const {
    called(TVMStreamFree(device.device_type, device.device_id, stream));
  }
  void SetStream(Device device, TVMStreamHandle stream) const {
    called(TVMSetStream(device.device_type, device.device_id, stream));
  }
  /** Waits until the work of a stream has finished. */
  void StreamSync(Device device, TVMStreamHandle stream) const {
    called(TVMSynchronize(device.device_type, device.device_id, stream));
  }

 private:
  /** Throws the error of a function of the C API. Its text begins with the kind, and may end with a backtrace. */
  static void called(int code) {
    if (code == 0) return;
    const std::string text = TVMGetLastError();
    ANYFN_CLASSIC_FAIL_ << text.substr(0, text.find("\nStack trace:"));
  }
};

}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

#endif  // ANYFN_CLASSIC_DEVICE_HPP_
