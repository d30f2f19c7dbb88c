if [ -d cache ]; then echo all is well; else echo the folder cache is missing; exit 1; fi
