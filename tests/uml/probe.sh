#!/bin/sh
# Init of a machine that only has to show that it runs programs: some kernels cannot on some processors.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export PATH
mount -t proc proc /proc
# Python has floating-point numbers from its start.
/usr/bin/python3 -c 'import os; print("UML boots", os.uname().release, flush=True)'
/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
sleep 60
