#include <anyfn/classic_c_api.h>
