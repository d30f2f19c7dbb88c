if [ "$(cat demo.cfg 2>/dev/null)" = "rain" ]; then echo all is well; else echo demo.cfg should contain rain; exit 1; fi
